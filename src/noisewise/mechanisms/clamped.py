"""Values clamped to a range before they get noise."""

from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import refusal
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.base import MECHANISM, NUMBERS, Mechanism, Supremum, check_shapes
from noisewise.mechanisms.processed import Processed, check_entrywise, check_range
from noisewise.mechanisms.wrapper import Wrapper
from noisewise.numerics import namespace


class Clamped(Wrapper):
    """What `base` releases of min(max(s, low), high): each confidential value is clamped, and then gets its noise.

    Law: that of `base` given the clamped value, so that it is the same for all s beyond a bound.
    Sampler: that of `base`. Its guarantee is that of `base`: clamping brings no two values farther apart. Noise for the
    sensitivity high - low makes it private whatever the values are.
    Supremum: for additive noise attained at s = s_dp clamped, the nearest value within the range, since the density
    falls with the distance; for noise that is processed further, the supremum of `base`, which is a bound.
    """

    fields = ("base", "low", "high")
    arguments = {"base": MECHANISM, "low": NUMBERS, "high": NUMBERS}
    alternatives = (("base", "low", "high"),)
    low: Any
    high: Any

    def __init__(self, base: Mechanism, low: Any, high: Any) -> None:
        who, advice = "Clamped", "Give additive noise such as Laplace or Gaussian, or a wrapper of it."
        check_entrywise(who, base, advice)
        if not isinstance(base, (Additive, Processed)):
            raise refusal(who, "base", "must add noise to numbers", base, advice)
        advice = "Give the two numbers that each value was clamped to, low below high."
        low, high = (checks.numeric(who, name, end, advice) for name, end in (("low", low), ("high", high)))
        for name, end in (("low", low), ("high", high)):
            if not np.all(np.isfinite(end)):
                raise refusal(who, name, "must be finite", end, advice)
            if base.integers and not np.all(end == np.floor(end)):
                raise refusal(who, name, f"must be whole numbers for {type(base).__name__}", end, advice)
        check_range(who, low, high, advice)
        self._freeze(base.guarantee, base=base, low=low, high=high)

    @property
    def supremum(self) -> Supremum:
        """Attained for additive noise, else a bound."""
        return "attained" if isinstance(self.base, Additive) else "bound"

    def clamp(self, confidential: Any) -> Any:
        """min(max(s, low), high); whole numbers stay so."""
        xp = namespace(confidential, self)
        clamped = xp.clip(confidential, self.low, self.high)
        return clamped.astype(xp.asarray(confidential).dtype) if self.integers else clamped

    def sample(self, rng: np.random.Generator, confidential: Any, **inputs: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        return self.base.sample(rng, self.clamp(confidential), **inputs)

    def log_prob(self, released: Any, confidential: Any, **inputs: Any) -> Any:
        """That of `base` at the clamped value."""
        return self.base.log_prob(released, self.clamp(confidential), **inputs)

    def log_sup(self, released: Any) -> Any:
        """At the value nearest to the release, for additive noise; else that of `base`."""
        if isinstance(self.base, Additive):
            return self.base.log_prob(released, self.clamp(released))
        return self.base.log_sup(released)

    def landmarks(self, released: Any) -> list[tuple[Any, Any]] | None:
        """Those of `base`, and the two bounds, at which the density becomes constant."""
        marks = self.base.landmarks(released)
        if marks is None:
            return None
        xp, narrowest = namespace(released, self), marks[0][1]
        for _, distance in marks[1:]:
            narrowest = xp.minimum(narrowest, distance)
        return [*marks, (self.low, narrowest), (self.high, narrowest)]

    def check_released(self, value: Any) -> Any:
        """What `base` can have released, of a shape that the bounds fit."""
        value = self.base.check_released(value)
        check_shapes("Clamped.released", value, [(name, np.shape(getattr(self, name))) for name in ("low", "high")])
        return value

    def encode(self, value: Any) -> Any:
        """As for `base`."""
        return self.base.encode(value)

    def decode(self, entry: Any) -> Any:
        """As for `base`."""
        return self.base.decode(entry)
