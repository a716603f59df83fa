"""What is known of each of NumPyro's laws: mathematical facts, one row per class, for all other modules.

Samplers of variates, sums, conjugate steps and fits read these rows; none keeps a list of laws of its own. A class
without a row is drawn by NumPyro and evaluated by its density, and nothing else is assumed of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Facts:
    """One class of laws."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """Attributes that fix the law, each with its domain (a rule of `variates`); none where NumPyro is to draw it."""
    axes: Mapping[str, int] = field(default_factory=dict)
    """How many axes of its own an attribute has; none where it is not listed."""
    event_dim: int = 0
    """How many axes one value has."""
    discrete: bool = False
    """Whether all values are whole numbers."""
    statistics: tuple[str, ...] = ()
    """b(s) if it is an exponential family, log pi(s) = eta . b(s) - A + h(s); none where it is not."""
    while_known: str = ""
    """The attribute that must not vary for it to be that family."""
    smooth: bool = False
    """Whether a continuous law's score is absolutely continuous in s over the whole support."""
    kink: str = ""
    """The attribute at which the log density has a kink."""
    pole: bool = False
    """Whether the density may be infinite at an end."""
    heavy: bool = False
    """Whether the density may fall more slowly than exponentially in the distance."""
    moving_end: bool = False
    """Whether a parameter is an end of the support."""
    periodic: bool = False
    """Whether it is a law of angles, whose formula goes round."""
    conjugate: Mapping[str, str] = field(default_factory=dict)
    """Attributes with the class of prior that stays in its family where this law is observed."""
    sums_to: str = ""
    """The attribute that the entries of one value add up to."""
    counts_records: bool = False
    """Whether it counts independent records by category."""

    @property
    def linear_count(self) -> bool:
        """Whether it is a law of one whole number with log pi(s) = log h(s) + (affine in s)."""
        return self.discrete and not self.event_dim and self.statistics == ("s",)

    @property
    def located(self) -> bool:
        """Whether its free coordinate is `loc` plus `scale` times a variable whose law has neither."""
        return {"loc", "scale"} <= set(self.parameters) and not {"low", "high"} & set(self.parameters)


_SCALE = {"scale": "positive"}
_LOCATED = {"loc": "finite", **_SCALE}
_GAMMA = {"concentration": "positive", "rate": "positive"}
_BETA = {"concentration1": "positive", "concentration0": "positive"}
_SHARES = {"probs": "simplex"}
_NEGATIVE_BINOMIAL = Facts(_GAMMA, discrete=True, statistics=("s",), while_known="concentration")
_MULTINOMIAL = Facts(
    event_dim=1,
    discrete=True,
    statistics=("s",),
    while_known="total_count",
    sums_to="total_count",
    counts_records=True,
)

FACTS: dict[str, Facts] = {
    # Continuous
    "Normal": Facts(_LOCATED, statistics=("s", "s^2"), smooth=True, conjugate={"loc": "Normal"}),
    "LogNormal": Facts(_LOCATED, statistics=("log s", "log^2 s"), smooth=True, heavy=True),
    "HalfNormal": Facts(_SCALE),
    "StudentT": Facts({"df": "positive", **_LOCATED}, smooth=True, heavy=True),
    "Cauchy": Facts(_LOCATED, smooth=True, heavy=True),
    "HalfCauchy": Facts(_SCALE, heavy=True),
    "Laplace": Facts(_LOCATED, kink="loc"),
    "AsymmetricLaplace": Facts(kink="loc"),
    "AsymmetricLaplaceQuantile": Facts(kink="loc"),
    "Logistic": Facts(_LOCATED, smooth=True),
    "Gumbel": Facts(_LOCATED, smooth=True),
    "Exponential": Facts({"rate": "positive"}, statistics=("s",), smooth=True, conjugate={"rate": "Gamma"}),
    "Gamma": Facts(_GAMMA, statistics=("log s", "s"), smooth=True, pole=True, conjugate={"rate": "Gamma"}),
    "InverseGamma": Facts(_GAMMA, statistics=("log s", "1/s"), smooth=True, heavy=True),
    "Chi2": Facts({"df": "positive"}, statistics=("log s",), smooth=True, pole=True),
    "Beta": Facts(_BETA, statistics=("log s", "log(1-s)"), smooth=True, pole=True),
    "Uniform": Facts({"low": "finite", "high": "finite"}, moving_end=True),
    "Weibull": Facts({"scale": "positive", "concentration": "positive"}, smooth=True, pole=True, heavy=True),
    "Pareto": Facts({"scale": "positive", "alpha": "positive"}, heavy=True, moving_end=True),
    "Dirichlet": Facts(
        {"concentration": "positive"}, {"concentration": 1}, event_dim=1, statistics=("log s",), smooth=True
    ),
    "MultivariateNormal": Facts({"loc": "finite", "scale_tril": "finite"}, {"loc": 1, "scale_tril": 2}, event_dim=1),
    # Truncated normal laws (others NumPyro draws)
    "TwoSidedTruncatedDistribution": Facts({**_LOCATED, "low": "bound", "high": "bound"}, moving_end=True),
    "LeftTruncatedDistribution": Facts({**_LOCATED, "low": "bound"}, moving_end=True),
    "RightTruncatedDistribution": Facts({**_LOCATED, "high": "bound"}, moving_end=True),
    # A mixture, whose parts may be of any kind
    "MixtureSameFamily": Facts(heavy=True),
    # Angles
    "VonMises": Facts(periodic=True),
    "SineBivariateVonMises": Facts(event_dim=1, periodic=True),
    "SineSkewed": Facts(event_dim=1, periodic=True),
    # Whole numbers
    "BernoulliProbs": Facts({"probs": "probability"}, discrete=True, statistics=("s",), conjugate={"probs": "Beta"}),
    "BernoulliLogits": Facts({"logits": "logit"}, discrete=True, statistics=("s",)),
    "BinomialProbs": Facts(
        {"probs": "probability", "total_count": "count"},
        discrete=True,
        statistics=("s",),
        while_known="total_count",
        conjugate={"probs": "Beta"},
    ),
    "BinomialLogits": Facts(
        {"logits": "logit", "total_count": "count"}, discrete=True, statistics=("s",), while_known="total_count"
    ),
    "BetaBinomial": Facts({**_BETA, "total_count": "count"}, discrete=True),
    "Poisson": Facts({"rate": "rate"}, discrete=True, statistics=("s",), conjugate={"rate": "Gamma"}),
    "ZeroInflatedPoisson": Facts({"gate": "probability", "rate": "rate"}, discrete=True),
    "GammaPoisson": _NEGATIVE_BINOMIAL,
    "NegativeBinomial2": _NEGATIVE_BINOMIAL,
    "NegativeBinomialProbs": replace(_NEGATIVE_BINOMIAL, conjugate={"probs": "Beta"}),
    "NegativeBinomialLogits": _NEGATIVE_BINOMIAL,
    "GeometricProbs": Facts({"probs": "chance"}, discrete=True, statistics=("s",), conjugate={"probs": "Beta"}),
    "GeometricLogits": Facts({"logits": "logit"}, discrete=True, statistics=("s",)),
    "CategoricalProbs": Facts(_SHARES, {"probs": 1}, discrete=True, conjugate={"probs": "Dirichlet"}),
    "CategoricalLogits": Facts({"logits": "logits"}, {"logits": 1}, discrete=True),
    "MultinomialProbs": replace(
        _MULTINOMIAL,
        parameters={**_SHARES, "total_count": "count"},
        axes={"probs": 1},
        conjugate={"probs": "Dirichlet"},
    ),
    "MultinomialLogits": replace(
        _MULTINOMIAL, parameters={"logits": "logits", "total_count": "count"}, axes={"logits": 1}
    ),
    "DirichletMultinomial": Facts(event_dim=1, discrete=True, sums_to="total_count"),
    # A point, of whole numbers or of others
    "Delta": Facts({"v": "finite"}),
}
"""By the name of the class."""

_NOTHING = Facts()


def facts_of(kind: str) -> Facts:
    """What is known of a class of laws; empty `Facts` for one without a row."""
    return FACTS.get(kind, _NOTHING)
