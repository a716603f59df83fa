"""Noise whose scale is itself confidential: smooth sensitivity and other data-dependent scales."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.base import MECHANISM, POSITIVE, Mechanism
from noisewise.numerics import namespace

_LARGEST = 1e300
"""Stands in for an infinite scale: with either, no bounded interval has any probability left."""


class LatentScale(Mechanism):
    """s_dp = s + h z with h = max(bound, t): z is the noise of `base`, t the confidential value named `statistic`.

    Density: base((s_dp - s) / h) / h. So the scale of the noise is h times that of `base`. One t serves all entries
    of s, or there is one per entry. The model must have `statistic`, released or not.

    Calibration: none of its own; `noisewise.mechanisms.smooth` makes one from a privacy budget where t is a smooth
    sensitivity (Nissim, Raskhodnikova and Smith 2007). Taking the larger of t and a constant keeps it smooth.
    Sampler: h times a variate of `base`.
    Supremum: base(0) / bound, attained at s = s_dp and any t <= bound; without `bound` there would be none. The
    probability of a bounded interval (rounding, thresholds) attains its supremum with s in the middle and the least
    scale, since the noise is unimodal.
    """

    fields = ("base", "bound")
    static = ("statistic",)
    arguments = {"base": MECHANISM, "statistic": {"type": "string"}, "bound": POSITIVE}
    alternatives = (("base", "statistic", "bound"),)
    measure = "density"
    supremum = "attained"
    base: Additive
    statistic: str
    bound: Any

    def __init__(self, base: Additive, statistic: str, bound: Any) -> None:
        if not isinstance(base, Additive) or base.measure != "density" or base.event_dim:
            rule = "must be an additive mechanism that has a density and acts entry by entry"
            advice = "Give the noise at t = 1, for example Laplace(scale=2.0)."
            raise refusal("LatentScale", "base", rule, base, advice)
        if base.guarantee is not None:
            rule = "must be given by its scale, without a budget"
            advice = "A budget for a known sensitivity does not carry over: use noisewise.mechanisms.smooth."
            raise refusal("LatentScale", "base", rule, base.guarantee, advice)
        advice = "Give the least value that the curator lets the scale take."
        self._freeze(
            base=base,
            statistic=checks.name("LatentScale", "statistic", statistic),
            bound=checks.positive("LatentScale", "bound", bound, advice),
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The one further confidential value it reads."""
        return (self.statistic,)

    def sample(self, rng: np.random.Generator, confidential: Any, **inputs: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        return confidential + self._scale(confidential, inputs) * self.base.noise_sample(rng, np.shape(confidential))

    def log_prob(self, released: Any, confidential: Any, **inputs: Any) -> Any:
        """log density of the base noise at (released - confidential) / h, less log h."""
        xp = namespace(released, confidential, inputs, self)
        scale = self._scale(confidential, inputs)
        finite = xp.isfinite(scale)  # a heavy-tailed model may propose infinity: no density is left there
        scale = xp.where(finite, scale, 1.0)
        return xp.where(finite, self.base.noise_log_prob((released - confidential) / scale) - xp.log(scale), -xp.inf)

    def log_sup(self, released: Any) -> Any:
        """log density of the base noise at zero, less log bound: at confidential = released, t <= bound."""
        return self.base.log_sup(released) - namespace(released, self).log(self.bound)

    @property
    def has_intervals(self) -> bool:
        """Whether probabilities of intervals are tractable."""
        return self.base.has_intervals

    def log_interval(self, low: Any, high: Any, confidential: Any, **inputs: Any) -> Any:
        """log P(low <= released < high | confidential)."""
        scale = namespace(confidential, inputs, self).minimum(self._scale(confidential, inputs), _LARGEST)
        return self.base.log_interval((low - confidential) / scale, (high - confidential) / scale, 0.0)

    def log_sup_interval(self, low: Any, high: Any) -> Any:
        """Supremum of `log_interval` over the confidential values: at the middle, with the least scale."""
        return self.base.log_sup_interval(low / self.bound, high / self.bound)

    def check_released(self, value: Any) -> Any:
        """Finite numbers of a shape that `bound` and the base's scale fit."""
        return super().check_released(self.base.check_released(value))

    def _scale(self, confidential: Any, inputs: dict[str, Any]) -> Any:
        """max(bound, t), its axes lined up from the front: rows first, then one t per entry or one for all."""
        if set(inputs) != {self.statistic}:
            advice = f"Pass {self.statistic}=..., the confidential value of the scale."
            rule = "must be given, and nothing else"
            raise refusal("LatentScale.log_prob", self.statistic, rule, sorted(inputs), advice)
        xp = namespace(confidential, inputs, self)
        latent = xp.asarray(inputs[self.statistic])
        missing = np.ndim(confidential) - latent.ndim
        if missing < 0:
            rule = f"must have at most as many axes as the value of shape {np.shape(confidential)}"
            raise refusal("LatentScale", self.statistic, rule, latent.shape, "Give one scale, or one per entry.")
        return xp.maximum(self.bound, latent.reshape(latent.shape + (1,) * missing))
