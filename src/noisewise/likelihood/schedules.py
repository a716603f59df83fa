"""How large the samples of Monte Carlo EM are, step by step."""

import math
from dataclasses import dataclass

from noisewise import checks
from noisewise.errors import refusal


@dataclass(frozen=True)
class Ascent:
    """Sample sizes by the rise of Q (Caffo, Jank and Jones 2005).

    A step is taken when the lower confidence bound of the rise is positive, else the sample grows by the factor
    `growth`. The run stops when the upper bound of the rise is below `tolerance`.
    """

    start: int = 1_000
    tolerance: float = 1e-3
    growth: float = 1.5
    alpha: float = 0.25
    beta: float = 0.25
    gamma: float = 0.25
    most: int = 4_000_000

    def __post_init__(self) -> None:
        checks.integer("Ascent", "start", self.start, least=10, advice="The default is 1000.")
        checks.integer("Ascent", "most", self.most, least=self.start, advice="The default is 4_000_000.")
        checks.positive_number("Ascent", "tolerance", self.tolerance, "The default is 1e-3.")
        if not checks.positive_number("Ascent", "growth", self.growth, "The default is 1.5.") > 1:
            raise refusal("Ascent", "growth", "must be above 1", self.growth, "The default is 1.5.")
        for name in ("alpha", "beta", "gamma"):
            if not checks.positive_number("Ascent", name, getattr(self, name), "The default is 0.25.") <= 0.5:
                rule = "must be the probability of a tail, at most 0.5"
                raise refusal("Ascent", name, rule, getattr(self, name), "The default is 0.25.")


@dataclass(frozen=True)
class Staged:
    """The paper's schedule: tolerances on the parameters' change, with growing samples, stage by stage.

    Each stage begins where the last one ended. Samples are drawn anew in every iteration, so the change does not fall
    below its own noise: a stage ends after `cap` steps at the latest.
    """

    tolerances: tuple[float, ...] = (1e-3, 1e-4, 1e-5)
    sizes: tuple[int, ...] = (10**3, 10**5, 10**7)
    cap: int = 25

    def __post_init__(self) -> None:
        checks.integer("Staged", "cap", self.cap, least=1, advice="The default is 25.")
        for name in ("sizes", "tolerances"):
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)) or not given:
                raise refusal("Staged", name, "must be one number for every stage", given, "Give, for example, three.")
            object.__setattr__(self, name, tuple(given))
        for size in self.sizes:
            checks.integer("Staged", "sizes", size, least=10, advice="The default is (10**3, 10**5, 10**7).")
        for tolerance in self.tolerances:
            checks.positive_number("Staged", "tolerances", tolerance, "The default is (1e-3, 1e-4, 1e-5).")
        if len(self.sizes) != len(self.tolerances):
            rule = f"must be as many as the tolerances, {len(self.tolerances)}"
            raise refusal("Staged", "sizes", rule, self.sizes, "Give both for every stage.")


def next_size(rise: float, error: float, size: int, lower: float, power: float) -> int:
    """The sample size at which a rise like this one would be seen: sigma^2 (z_alpha + z_beta)^2 / rise^2.

    sigma^2 is the variance of the Monte Carlo average times the size of the sample behind it, not the squared error.
    """
    sigma_squared = size * error**2
    return math.ceil(sigma_squared * (lower + power) ** 2 / rise**2) if rise > 0 else size
