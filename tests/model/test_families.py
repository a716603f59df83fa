"""The table of facts: every claim about a NumPyro law against its own density, and nothing claimed twice."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from noisewise.likelihood.e_step import streamed, sufficient
from noisewise.model.families import FACTS, facts_of
from noisewise.model.on_device import variates as device_variates
from noisewise.model.variates import RULES, VARIATES
from noisewise.model.wrappers import kind_of, unchecked
from noisewise.numerics import double
from noisewise.samplers.gibbs import conjugate

SHARES = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.1, 0.4])

PAIRS = {
    "Normal": lambda: (dist.Normal(0.3, 1.2), dist.Normal(-0.8, 0.7)),
    "LogNormal": lambda: (dist.LogNormal(0.3, 1.2), dist.LogNormal(-0.8, 0.7)),
    "Exponential": lambda: (dist.Exponential(0.7), dist.Exponential(2.0)),
    "Gamma": lambda: (dist.Gamma(2.0, 3.0), dist.Gamma(0.7, 1.1)),
    "InverseGamma": lambda: (dist.InverseGamma(2.0, 3.0), dist.InverseGamma(0.7, 1.1)),
    "Chi2": lambda: (dist.Chi2(3.0), dist.Chi2(5.5)),
    "Beta": lambda: (dist.Beta(2.0, 3.0), dist.Beta(0.7, 1.1)),
    "Dirichlet": lambda: (dist.Dirichlet(np.array([2.0, 3.0, 0.5])), dist.Dirichlet(np.array([1.0, 0.2, 4.0]))),
    "BernoulliProbs": lambda: (dist.BernoulliProbs(0.2), dist.BernoulliProbs(0.7)),
    "BernoulliLogits": lambda: (dist.BernoulliLogits(0.2), dist.BernoulliLogits(-0.7)),
    "BinomialProbs": lambda: (dist.BinomialProbs(0.2, 9), dist.BinomialProbs(0.7, 9)),
    "BinomialLogits": lambda: (dist.BinomialLogits(0.2, 9), dist.BinomialLogits(-0.7, 9)),
    "Poisson": lambda: (dist.Poisson(2.0), dist.Poisson(5.5)),
    "GammaPoisson": lambda: (dist.GammaPoisson(3.0, 2.0), dist.GammaPoisson(3.0, 0.4)),
    "NegativeBinomial2": lambda: (dist.NegativeBinomial2(2.0, 3.0), dist.NegativeBinomial2(5.0, 3.0)),
    "NegativeBinomialProbs": lambda: (dist.NegativeBinomialProbs(3.0, 0.4), dist.NegativeBinomialProbs(3.0, 0.8)),
    "NegativeBinomialLogits": lambda: (dist.NegativeBinomialLogits(3.0, 0.4), dist.NegativeBinomialLogits(3.0, -0.8)),
    "GeometricProbs": lambda: (dist.GeometricProbs(0.2), dist.GeometricProbs(0.7)),
    "GeometricLogits": lambda: (dist.GeometricLogits(0.2), dist.GeometricLogits(-0.7)),
    "MultinomialProbs": lambda: tuple(dist.MultinomialProbs(share, 6) for share in SHARES),
    "MultinomialLogits": lambda: tuple(dist.MultinomialLogits(np.log(share), 6) for share in SHARES),
}
"""Two laws of every exponential family, what must be known the same in both."""
B = {
    "s": lambda s: s,
    "s^2": np.square,
    "log s": np.log,
    "log^2 s": lambda s: np.log(s) ** 2,
    "1/s": lambda s: 1.0 / s,
    "log(1-s)": lambda s: np.log1p(-s),
}
NATURAL = {
    "Gamma": (np.log, lambda x: x),
    "Beta": (np.log, lambda x: np.log1p(-x)),
    "Normal": (lambda x: x, np.square),
    "Dirichlet": (np.log,),
}
"""What log densities of a prior's family are linear in."""


def rounding(kind):
    """What JAX's functions allow: betaln, which negative binomial densities use, has an error of 1e-6."""
    return 1e-5 if FACTS[kind].while_known == "concentration" else 1e-9


def left_over(target, columns):
    """The largest residual of a linear fit, beside the spread of what was fitted."""
    design = np.column_stack([np.ones(len(target)), *columns])
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return np.max(np.abs(residual)) / np.ptp(target)


def places(law):
    """Values all over the support of a law; JAX's own sampler would take longer to compile than all the rest."""
    rng, constraints, support = np.random.default_rng(0), dist.constraints, law.support
    if support is constraints.simplex:
        return rng.dirichlet(np.ones(3), 400)
    if law.event_shape:
        return 1.0 * rng.multinomial(law.total_count, np.ones(3) / 3, 400)
    if support.is_discrete:
        most = 1 if support is constraints.boolean else getattr(support, "upper_bound", 20)
        return 1.0 * rng.integers(0, int(most) + 1, 400)
    if support is constraints.unit_interval:
        return rng.uniform(size=400)
    return rng.normal(0.0, 1.5, 400) if support is constraints.real else rng.gamma(1.5, size=400)


def of_log_ratio(first, second, statistics):
    """How far log p1(s) - log p2(s) is from linear in b(s)."""
    s = places(first)
    ratio = np.asarray(jax.jit(lambda: first.log_prob(s) - second.log_prob(s))())
    return left_over(ratio, [B[one](s).reshape(len(s), -1) for one in statistics])


def test_every_exponential_family_is_looked_at():
    assert set(PAIRS) == {kind for kind, facts in FACTS.items() if facts.statistics}


@pytest.mark.parametrize("kind", PAIRS)
def test_log_densities_of_a_family_are_linear_in_its_statistics(kind):
    with double():
        pair = PAIRS[kind]()
        assert {kind_of(law) for law in pair} == {kind}
        assert of_log_ratio(*pair, FACTS[kind].statistics) < rounding(kind)


def test_what_is_no_family_shows():
    """Negative controls: another law, and families without what they need."""
    with double():
        assert of_log_ratio(dist.StudentT(3.0, 0.0, 1.0), dist.StudentT(3.0, 1.0, 1.0), ("s", "s^2")) > 0.01
        assert of_log_ratio(dist.Gamma(2.0, 3.0), dist.Gamma(0.7, 1.1), ("s",)) > 0.01
        assert of_log_ratio(dist.GammaPoisson(3.0, 2.0), dist.GammaPoisson(1.0, 2.0), ("s",)) > 0.01


OBSERVED = {
    "Normal": lambda x: dist.Normal(x, 1.3).log_prob(0.4),
    "Exponential": lambda x: dist.Exponential(x).log_prob(0.4),
    "Gamma": lambda x: dist.Gamma(1.7, x).log_prob(0.4),
    "Poisson": lambda x: dist.Poisson(x).log_prob(3),
    "BernoulliProbs": lambda x: dist.BernoulliProbs(x).log_prob(1),
    "BinomialProbs": lambda x: dist.BinomialProbs(x, 9).log_prob(4),
    "GeometricProbs": lambda x: dist.GeometricProbs(x).log_prob(4),
    "NegativeBinomialProbs": lambda x: dist.NegativeBinomialProbs(3.0, x).log_prob(4),
    "CategoricalProbs": lambda x: dist.CategoricalProbs(x).log_prob(1),
    "MultinomialProbs": lambda x: dist.MultinomialProbs(x, 6).log_prob(jnp.array([1, 2, 3])),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_what_is_observed_keeps_the_priors_family(kind):
    ((_, prior),) = FACTS[kind].conjugate.items()
    x = np.random.default_rng(0).dirichlet(np.ones(3), 50) if prior == "Dirichlet" else np.linspace(0.05, 0.95, 50)
    with double():
        found = np.asarray(jax.jit(jax.vmap(OBSERVED[kind]))(x))
    columns = [column(x).reshape(len(x), -1) for column in NATURAL[prior]]
    assert left_over(found, columns) < rounding(kind)


def test_every_conjugate_law_and_prior_has_its_step():
    assert set(OBSERVED) == {kind for kind, facts in FACTS.items() if facts.conjugate}
    priors = {prior for facts in FACTS.values() for prior in facts.conjugate.values()}
    assert priors == {family.name for family in conjugate.FAMILIES.values()} == set(NATURAL) == set(conjugate.INSIDE)


LOCATED = {
    "Laplace": lambda: dist.Laplace(0.3, 1.2),
    "AsymmetricLaplace": lambda: dist.AsymmetricLaplace(0.3, 1.2, 0.7),
    "AsymmetricLaplaceQuantile": lambda: dist.AsymmetricLaplaceQuantile(0.3, 1.2, 0.7),
    "Normal": lambda: dist.Normal(0.3, 1.2),
    "StudentT": lambda: dist.StudentT(3.0, 0.3, 1.2),
    "Cauchy": lambda: dist.Cauchy(0.3, 1.2),
    "Logistic": lambda: dist.Logistic(0.3, 1.2),
    "Gumbel": lambda: dist.Gumbel(0.3, 1.2),
}


@pytest.mark.parametrize("kind", LOCATED)
def test_the_slope_jumps_at_a_kink_and_nowhere_else(kind):
    with double():
        law, facts = LOCATED[kind](), FACTS[kind]
        slope = jax.jit(jax.grad(law.log_prob))
        left, right = (float(slope(0.3 + side)) for side in (-1e-9, 1e-9))
    assert facts.smooth == (not facts.kink) == (abs(left - right) < 1e-6)
    assert not facts.kink or float(getattr(law, facts.kink)) == 0.3


def test_tables_add_up_and_angles_go_round():
    with double():
        for law in (*PAIRS["MultinomialProbs"](), dist.DirichletMultinomial(np.ones(3), 6)):
            drawn = np.asarray(jax.jit(lambda key, law=law: law.sample(key, (20,)))(jax.random.key(1)))
            assert np.all(drawn.sum(axis=-1) == getattr(law, FACTS[kind_of(law)].sums_to))
        for law, facts in ((dist.VonMises(0.3, 2.0), FACTS["VonMises"]), (dist.Normal(0.3, 2.0), FACTS["Normal"])):
            at, further = law, unchecked(law)
            turned = float(jax.jit(lambda a=at, b=further: a.log_prob(1.0) - b.log_prob(1.0 + 2.0 * np.pi))())
            assert facts.periodic == (abs(turned) < 1e-12)


def test_the_table_says_who_is_drawn_and_summed_by_what():
    drawn = {kind for kind, facts in FACTS.items() if facts.parameters}
    assert set(VARIATES) == set(device_variates.DRAWS) == drawn
    rules = {rule for facts in FACTS.values() for rule in facts.parameters.values()}
    assert rules <= set(RULES)
    assert set(RULES) == set(device_variates.RULES)
    assert {facts.statistics for facts in FACTS.values() if facts.statistics} == set(sufficient.POINTS)
    assert {FACTS[kind].statistics for kind in streamed.FAMILIES} == set(streamed.BY_STATISTICS)


def test_every_row_is_of_a_law_there_is_and_of_its_kind():
    for kind, facts in FACTS.items():
        law = getattr(dist, kind, None) or getattr(dist.truncated, kind)
        assert law.__name__ == kind
        stated = getattr(law, "support", None)
        depends = kind in ("Delta", "MixtureSameFamily")  # on the point, and on the parts
        if isinstance(stated, dist.constraints.Constraint) and not depends:
            assert bool(stated.is_discrete) == facts.discrete, kind
            assert stated.event_dim == facts.event_dim, kind


def test_nothing_is_known_of_other_classes():
    class Normal(dist.Normal):
        """Another library's class may have the name, and another density."""

    Normal.__module__ = "elsewhere"
    assert kind_of(dist.Normal(0.0, 1.0).expand([3]).to_event(1)) == "Normal"
    assert kind_of(Normal(0.0, 1.0)) == ""
    assert kind_of(dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.ExpTransform())) == ""
    assert facts_of("").statistics == ()


APART = {
    "Poisson": (dict(rate=2.0), dict(rate=5.0)),
    "BernoulliProbs": (dict(probs=0.2), dict(probs=0.7)),
    "BernoulliLogits": (dict(logits=-1.0), dict(logits=2.0)),
    "GeometricProbs": (dict(probs=0.2), dict(probs=0.7)),
    "GeometricLogits": (dict(logits=-1.0), dict(logits=2.0)),
    "GammaPoisson": (dict(concentration=2.0, rate=1.0), dict(concentration=5.0, rate=2.0)),
}


def test_a_count_is_linear_in_any_case_only_where_no_parameter_must_be_known():
    """The ratio of two laws of such a family, whatever their parameters, is exponential in the count."""
    for kind, facts in FACTS.items():
        if facts.linear_count and not facts.while_known:
            made = kind if kind in APART else "GammaPoisson"
            first, second = (getattr(dist, made)(**given) for given in APART[made])
            k = np.arange(2 if kind.startswith("Bernoulli") else 8)
            ratio = np.asarray(jax.jit(lambda a=first, b=second, k=k: a.log_prob(k) - b.log_prob(k))(), float)
            assert np.allclose(np.diff(ratio, 2), 0.0, atol=1e-4), kind
