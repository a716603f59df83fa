"""Samplers of the exact posterior, one file each; `sample.py` is the verb that runs them."""

from noisewise.samplers.augmentation import Augmentation
from noisewise.samplers.importance import Importance
from noisewise.samplers.importance_rejection import ImportanceRejection
from noisewise.samplers.mcmc import MCMC
from noisewise.samplers.nuts import NUTS
from noisewise.samplers.rejection import Rejection
from noisewise.samplers.rejection_control import RejectionControl
from noisewise.samplers.smc import SMC

__all__ = [
    "MCMC",
    "NUTS",
    "SMC",
    "Augmentation",
    "Importance",
    "ImportanceRejection",
    "Rejection",
    "RejectionControl",
]
