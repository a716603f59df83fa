"""The analyst's model, independent of any release: laws of parameters and of confidential statistics."""

from noisewise.model.model import Model
from noisewise.model.simulator import Simulator
from noisewise.model.total import Total
from noisewise.model.weak import counts_up_to

__all__ = ["Model", "Simulator", "Total", "counts_up_to"]
