"""Every E-step of `nw.MCEM` by the name that its argument `e_step` has for it."""

from noisewise.likelihood.e_step.by_chance import Markov, Rejection, Resampled
from noisewise.likelihood.e_step.by_weight import Importance, Mixture, Recycled
from noisewise.likelihood.e_step.contract import EStep
from noisewise.likelihood.e_step.over_records import OverRecords

E_STEPS: dict[str, EStep] = {
    e_step.name: e_step
    for e_step in (Importance(), Mixture(), Rejection(), Resampled(), Markov(), Recycled(), OverRecords())
}
