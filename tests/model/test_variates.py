"""Every law's draws against its own density, lane independence, and bad parameters.

The tables hold functions of parameters with the values to call them at. Each law is drawn along both paths of
`noisewise.laws.Law`: as a constant, and as a function of traced parameters with one row of them per draw.
"""

import warnings
from functools import cache, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees, counts_agree
from numpyro.distributions import transforms
from scipy import stats
from scipy.special import roots_legendre
from targets import brief_rows, briefly

from noisewise.errors import InputError, NoisewiseWarning
from noisewise.model.law import Law, constant_law
from noisewise.model.variates import VARIATES
from noisewise.model.wrappers import peel
from noisewise.numerics import double

WHO = "Model: prior 'x'"
PILOT, DRAWS = 10_000, 250_000
"""The pilot only places the bins, so the counts of the other draws are independent of them."""

Transformed = dist.TransformedDistribution


def affine_exp(loc, scale):
    return Transformed(dist.Normal(0.0, 1.0), [transforms.AffineTransform(loc, scale), transforms.ExpTransform()])


def nested(loc, scale):
    inner = Transformed(dist.Gamma(2.0, 1.5), transforms.AffineTransform(0.0, scale))
    return Transformed(inner, transforms.AffineTransform(loc, 1.0))


def mixture(weight, gap):
    parts = dist.Normal(jnp.stack([0.0 * gap, gap]), jnp.array([1.0, 0.5]))
    return dist.MixtureSameFamily(dist.Categorical(jnp.stack([weight, 1 - weight])), parts)


CONTINUOUS = {
    "normal": (dist.Normal, (-1.5, 2.5)),
    "log-normal": (dist.LogNormal, (0.5, 0.75)),
    "half-normal": (dist.HalfNormal, (3.0,)),
    "student": (dist.StudentT, (3.5, 1.0, 2.0)),
    "cauchy": (dist.Cauchy, (1.0, 2.0)),
    "half-cauchy": (dist.HalfCauchy, (0.5,)),
    "laplace": (dist.Laplace, (1.0, 2.0)),
    "logistic": (dist.Logistic, (1.0, 2.0)),
    "gumbel": (dist.Gumbel, (1.0, 2.0)),
    "exponential": (dist.Exponential, (4.0,)),
    "gamma": (dist.Gamma, (2.5, 4.0)),
    "gamma-small": (dist.Gamma, (0.2, 4.0)),
    "inverse-gamma": (dist.InverseGamma, (2.5, 4.0)),
    "chi2": (dist.Chi2, (3.0,)),
    "beta": (dist.Beta, (2.0, 5.0)),
    "beta-small": (dist.Beta, (0.3, 0.7)),
    "uniform": (dist.Uniform, (-2.0, 5.0)),
    "weibull": (dist.Weibull, (2.0, 1.5)),
    "pareto": (dist.Pareto, (2.0, 3.0)),
    "truncated-two-sided": (lambda m, s, a, b: dist.TruncatedNormal(m, s, low=a, high=b), (1.0, 2.0, -0.5, 2.0)),
    "truncated-above-mean": (lambda m, s, a, b: dist.TruncatedNormal(m, s, low=a, high=b), (1.0, 2.0, 3.5, 6.0)),
    "truncated-left": (lambda m, s, a: dist.TruncatedNormal(m, s, low=a), (1.0, 2.0, 2.0)),
    "truncated-right": (lambda m, s, b: dist.TruncatedNormal(m, s, high=b), (1.0, 2.0, 0.5)),
    "truncated-left-tail": (lambda m, s, a: dist.TruncatedNormal(m, s, low=a), (1.0, 2.0, 61.0)),
    "truncated-right-tail": (lambda m, s, b: dist.TruncatedNormal(m, s, high=b), (1.0, 2.0, -59.0)),
    "truncated-two-sided-tail": (
        lambda m, s, a, b: dist.TruncatedNormal(m, s, low=a, high=b),
        (0.0, 1.0, -31.0, -30.0),
    ),
    "transformed-affine-exp": (affine_exp, (0.5, 0.3)),
    "transformed-nested": (nested, (1.0, -2.0)),
    "transformed-library": (lambda low, high: dist.LogUniform(low, high), (0.5, 20.0)),
    "transformed-folded": (lambda loc: dist.FoldedDistribution(dist.Normal(loc, 1.0)), (0.5,)),
}
FALLBACK = {
    "von-mises": (dist.VonMises, (0.5, 3.0)),
    "kumaraswamy": (dist.Kumaraswamy, (2.0, 3.0)),
    "mixture": (mixture, (0.3, 4.0)),
    "truncated-cauchy": (lambda loc, low: dist.TruncatedCauchy(loc, 1.0, low=low), (0.0, 0.5)),
    "subclass-of-a-table-entry": (dist.BetaProportion, (0.4, 6.0)),
}
"""Laws without an entry in the table: NumPyro's own sampler, one key per row."""

PROBS = np.array([0.2, 0.0, 0.5, 0.3])
LOGITS = np.array([0.3, -2.0, 1.0])
DISCRETE = {
    "bernoulli-probs": (lambda p: dist.Bernoulli(probs=p), (0.3,)),
    "bernoulli-logits": (lambda logit: dist.Bernoulli(logits=logit), (-1.2,)),
    "binomial-probs": (lambda p: dist.Binomial(20, probs=p), (0.3,)),
    "binomial-logits": (lambda logit: dist.Binomial(20, logits=logit), (-1.2,)),
    "categorical-probs": (lambda p: dist.Categorical(probs=p), (PROBS,)),
    "categorical-logits": (lambda logits: dist.Categorical(logits=logits), (LOGITS,)),
    "poisson": (dist.Poisson, (7.5,)),
    "poisson-large": (dist.Poisson, (900.0,)),
    "poisson-zero": (dist.Poisson, (0.0,)),
    "gamma-poisson": (dist.GammaPoisson, (2.5, 0.5)),
    "negative-binomial-2": (dist.NegativeBinomial2, (6.0, 2.0)),
    "negative-binomial-probs": (dist.NegativeBinomialProbs, (4.0, 0.3)),
    "negative-binomial-logits": (dist.NegativeBinomialLogits, (4.0, -0.5)),
    "geometric-probs": (lambda p: dist.Geometric(probs=p), (0.2,)),
    "geometric-logits": (lambda logit: dist.Geometric(logits=logit), (-1.0,)),
    "beta-binomial": (lambda a, b: dist.BetaBinomial(a, b, 15), (2.0, 3.0)),
    "zero-inflated-poisson": (dist.ZeroInflatedPoisson, (0.3, 4.0)),
    "delta": (dist.Delta, (0.5,)),
    "fallback-zero-inflated": (lambda p: dist.ZeroInflatedDistribution(dist.Binomial(9, probs=p), gate=0.25), (0.4,)),
}


def law_of(function, arguments, path):
    """(law, values of its parents for `n` rows as a function of n) along one of the two paths."""
    if path == "constant":
        with warnings.catch_warnings():
            # Several classes store 32-bit arrays whatever they are given: that warning has its own test.
            warnings.simplefilter("ignore", NoisewiseWarning)
            return Law(WHO, constant_law(function(*arguments), WHO), (), {}), lambda n: {}
    named = {f"p{i}": np.asarray(value, dtype=float) for i, value in enumerate(arguments)}
    known = {name: jax.ShapeDtypeStruct(value.shape, np.float64) for name, value in named.items()}
    law = Law(WHO, lambda **values: function(*values.values()), tuple(named), known)
    return law, lambda n: {name: np.broadcast_to(value, (n, *value.shape)) for name, value in named.items()}


def draws_of(function, arguments, path, seed, rows=PILOT + DRAWS):
    law, values = law_of(function, arguments, path)
    return law.draw(np.random.default_rng(seed), values(rows), rows)


@cache
def compiled_density(function):
    return jax.jit(lambda arguments, points: function(*arguments).log_prob(points))


def log_density(function, arguments, points):
    """The law's own log_prob at `points` (first axis), in 64 bits."""
    with double():
        return np.asarray(compiled_density(function)(tuple(map(jnp.asarray, arguments)), points))


def in_bins(draws, log_prob):
    """Whether continuous draws follow the density: chi-square over bins, everything outside them pooled."""
    pilot, rest = draws[:PILOT], draws[PILOT:]
    edges = np.unique(np.quantile(pilot, np.linspace(0.002, 0.998, 49)))
    probabilities = bin_integrals(log_prob, edges)
    inside = np.histogram(rest, edges)[0]
    return with_the_rest(inside, probabilities, len(rest))


def bin_integrals(log_prob, edges):
    """Probabilities of the bins by Gauss-Legendre, in log x where x > 0: bins near a pole at 0 span decades."""
    nodes, weights = roots_legendre(16)
    positive = edges[0] > 0
    edges = np.log(edges) if positive else edges
    half = np.diff(edges)[:, None] / 2
    points = edges[:-1, None] + half * (1 + nodes)
    x = np.exp(points) if positive else points
    values = np.exp(log_prob(x.ravel())).reshape(x.shape) * (x if positive else 1.0)
    return (values * weights * half).sum(axis=1)


def in_counts(draws, log_prob):
    """Whether discrete draws follow the probabilities: chi-square over the values of the pilot, the rest pooled."""
    pilot, rest = draws[:PILOT], draws[PILOT:]
    points = np.arange(pilot.min(), pilot.max() + 1)
    seen = np.array([np.count_nonzero(rest == point) for point in points])
    return with_the_rest(seen, np.exp(log_prob(points)), len(rest))


def with_the_rest(counts, probabilities, total):
    outside = max(1.0 - probabilities.sum(), 0.0)
    return counts_agree(np.append(counts, total - counts.sum()), np.append(probabilities, outside))


both_paths = pytest.mark.parametrize("path", ["constant", "function"])
CONSTANT = (
    *("normal", "gamma-small", "truncated-two-sided-tail", "transformed-nested"),
    *("poisson", "categorical-probs", "beta-binomial", "delta"),
)
"""Laws that are drawn along both paths by default; the others as functions of parameters only."""


def either_path(rows, left_out=()):
    """Every row along both paths, of which some run only with --long."""
    return pytest.mark.parametrize(
        ("function", "arguments", "path"),
        [
            pytest.param(*row, path, id=f"{name}-{path}", marks=[] if default else [pytest.mark.long])
            for name, row in rows.items()
            for path, default in (("constant", name in CONSTANT), ("function", name not in left_out))
        ],
    )


one_path = pytest.mark.parametrize("path", briefly(["constant", "function"], ["function"]))
"""Where the path changes nothing of what is tested; NumPyro's sampler is compiled for either."""


def table(rows):
    return pytest.mark.parametrize(("function", "arguments"), rows.values(), ids=rows)


# Draws against densities ---------------------------------------------------------------------------------


@pytest.mark.quick
def test_every_entry_of_the_table_has_a_case():
    laws = [function(*arguments) for function, arguments in [*CONTINUOUS.values(), *DISCRETE.values()]]
    laws += [function(*arguments) for function, arguments, *_ in VECTORS.values()]
    assert {type(peel(law)[0]).__name__ for law in laws} >= set(VARIATES)


@pytest.mark.quick
@either_path(CONTINUOUS)
def test_continuous_draws_follow_the_density(function, arguments, path, seed):
    draws = draws_of(function, arguments, path, seed)
    assert draws.shape == (PILOT + DRAWS,)
    assert draws.dtype == np.float64
    assert in_bins(draws, partial(log_density, function, arguments))


@one_path
@pytest.mark.parametrize(
    ("function", "arguments"), brief_rows(FALLBACK, ["kumaraswamy", "mixture", "truncated-cauchy"])
)
def test_fallback_draws_follow_the_density(function, arguments, path, seed):
    test_continuous_draws_follow_the_density(function, arguments, path, seed)


@either_path(DISCRETE, left_out=["fallback-zero-inflated"])
def test_discrete_draws_follow_the_probabilities(function, arguments, path, seed):
    draws = draws_of(function, arguments, path, seed)
    assert draws.shape == (PILOT + DRAWS,)
    assert in_counts(draws, partial(log_density, function, arguments))


@table(FALLBACK)
def test_laws_without_an_entry_use_the_fallback(function, arguments):
    assert law_of(function, arguments, "constant")[0].form.variate is None


@pytest.mark.parametrize(
    ("low", "high"),
    [(30.0, 31.0), (30.0, np.inf), (-np.inf, -30.0), (-1.0, np.inf), (300.0, np.inf), (1e-3, 1e-3 + 1e-9)],
)
def test_truncated_normal_in_the_tails(low, high, seed):
    # NumPyro's own density is infinite between two bounds in the upper tail, so this one is SciPy's.
    draws = draws_of(lambda a, b: dist.TruncatedNormal(0.0, 1.0, low=a, high=b), (low, high), "function", seed)
    assert np.all((draws >= low) & (draws <= high))
    assert np.isfinite(draws).all()
    assert in_bins(draws, stats.truncnorm(low, high).logpdf)


def test_inverse_gamma_beyond_the_range_of_doubles_is_infinite(seed):
    draws = draws_of(dist.InverseGamma, (1e-3, 1.0), "constant", seed, rows=1000)
    assert np.isinf(draws).any()
    assert not np.isnan(draws).any()


WRONG = {
    "rate used as scale": ("gamma", dist.Gamma, (2.5, 1 / 4.0)),
    "scale 2% too wide": ("normal", dist.Normal, (-1.5, 2.5 * 1.02)),
    "sign flipped": (
        "gumbel",
        lambda m, s: Transformed(dist.Gumbel(-m, s), transforms.AffineTransform(0.0, -1.0)),
        (1.0, 2.0),
    ),
    "variance used as scale": ("log-normal", dist.LogNormal, (0.5, 0.75**2)),
}


@pytest.mark.parametrize(("name", "function", "arguments"), WRONG.values(), ids=WRONG)
def test_negative_control_wrong_continuous_law(name, function, arguments, seed):
    draws = draws_of(function, arguments, "constant", seed)
    assert not in_bins(draws, partial(log_density, *CONTINUOUS[name]))


ONE_MORE = transforms.AffineTransform(1.0, 1.0)
WRONG_COUNTS = {
    "trials in place of failures": (
        "geometric-probs",
        lambda p: Transformed(dist.Geometric(probs=p), ONE_MORE),
        (0.2,),
    ),
    "mean 2% off": ("poisson", dist.Poisson, (7.5 * 1.02,)),
    "no extra zeros": ("zero-inflated-poisson", lambda gate, rate: dist.Poisson(rate), (0.3, 4.0)),
    "success and failure swapped": ("negative-binomial-probs", dist.NegativeBinomialProbs, (4.0, 0.7)),
}


@pytest.mark.parametrize(("name", "function", "arguments"), WRONG_COUNTS.values(), ids=WRONG_COUNTS)
def test_negative_control_wrong_discrete_law(name, function, arguments, seed):
    draws = draws_of(function, arguments, "function", seed)
    assert not in_counts(draws, partial(log_density, *DISCRETE[name]))


# Vector laws ---------------------------------------------------------------------------------------------

COVARIANCE = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
SHARES = np.array([0.2, 0.5, 0.3])
ALPHA, SMALL = np.array([1.5, 2.5, 4.0]), np.array([0.05, 0.3, 2.0])


def log_shares(factors):
    return np.log(SHARES * factors / np.sum(SHARES * factors))


def stick(loc, scale):
    return Transformed(dist.Normal(loc, scale).expand([2]).to_event(1), transforms.StickBreakingTransform())


# (function, arguments, arguments of nearby members, marginals as (projection, SciPy law))
VECTORS = {
    "dirichlet": (
        dist.Dirichlet,
        (ALPHA,),
        [(ALPHA * 1.1,), (ALPHA + np.array([0.3, 0.0, -0.2]),)],
        [(np.eye(3)[i], stats.beta(ALPHA[i], 8.0 - ALPHA[i])) for i in range(3)],
    ),
    "dirichlet-small": (
        dist.Dirichlet,
        (SMALL,),
        [(SMALL * 1.1,), (SMALL + np.array([0.02, 0.0, -0.2]),)],
        [(np.eye(3)[i], stats.beta(SMALL[i], 2.35 - SMALL[i])) for i in range(3)],
    ),
    "multivariate-normal": (
        lambda loc, covariance: dist.MultivariateNormal(loc, covariance),
        (np.array([1.0, -2.0, 0.5]), COVARIANCE),
        [(np.array([1.1, -2.1, 0.5]), COVARIANCE), (np.array([1.0, -2.0, 0.5]), 0.9 * COVARIANCE)],
        [
            (np.array([1.0, 0.0, 0.0]), stats.norm(1.0, np.sqrt(2.0))),
            (np.array([1.0, 1.0, 0.0]), stats.norm(-1.0, np.sqrt(4.2))),
            (np.array([0.0, 1.0, 2.0]), stats.norm(-1.0, np.sqrt(1.8))),
        ],
    ),
    "multivariate-normal-tril": (
        lambda loc, tril: dist.MultivariateNormal(loc, scale_tril=tril),
        (np.array([1.0, -2.0]), np.array([[1.0, 0.0], [2.0, 0.5]])),
        [(np.array([1.0, -1.9]), np.array([[0.95, 0.0], [1.9, 0.48]]))],
        [(np.array([0.0, 1.0]), stats.norm(-2.0, np.sqrt(4.25))), (np.array([2.0, -1.0]), stats.norm(4.0, 0.5))],
    ),
    "multinomial-probs": (
        lambda p: dist.Multinomial(12, probs=p),
        (SHARES,),
        [(np.array([0.22, 0.47, 0.31]),)],
        [(np.eye(3)[i], stats.binom(12, SHARES[i])) for i in range(3)],
    ),
    "multinomial-logits": (
        lambda logits: dist.Multinomial(12, logits=logits),
        (log_shares(np.ones(3)) + 1.7,),
        [(log_shares(np.array([1.1, 0.95, 1.0])),)],
        [(np.eye(3)[i], stats.binom(12, SHARES[i])) for i in range(3)],
    ),
    "stick-breaking": (stick, (0.3, 0.8), [(0.35, 0.8), (0.3, 0.75)], []),
}


def projection_follows(draws, law):
    """Whether projected draws follow a SciPy law: equal bins of its CDF, or its probabilities."""
    if hasattr(law, "pmf"):
        return in_counts(draws, law.logpmf)
    return counts_agree(np.histogram(law.cdf(draws), np.linspace(0, 1, 51))[0], np.full(50, 0.02))


@one_path
@pytest.mark.parametrize(("function", "arguments", "nearby", "marginals"), VECTORS.values(), ids=VECTORS)
def test_vector_draws_follow_the_density(function, arguments, nearby, marginals, path, seed):
    draws = draws_of(function, arguments, path, seed)
    assert draws.shape == (PILOT + DRAWS, *function(*arguments).shape())
    own = log_density(function, arguments, draws)
    assert np.isfinite(own).all()
    for others in nearby:  # E_p[q / p] = 1 for every density q that p dominates
        assert agrees(np.exp(log_density(function, others, draws) - own), 1.0)
    for direction, law in marginals:
        assert projection_follows(draws @ direction, law)


def test_negative_control_wrong_vector_law(seed):
    function, arguments, nearby, marginals = VECTORS["multivariate-normal"]
    draws = draws_of(function, (arguments[0], np.diag(np.diag(COVARIANCE))), "function", seed)  # correlations dropped
    assert not projection_follows(draws @ marginals[1][0], marginals[1][1])
    wider = draws_of(function, (arguments[0], 1.04 * COVARIANCE), "function", seed)
    ratio = log_density(function, nearby[1], wider) - log_density(function, arguments, wider)
    assert not agrees(np.exp(ratio), 1.0)


def test_dirichlet_draws_lie_on_the_simplex(seed):
    for alpha in (SMALL, np.full(3, 1e-3), np.full(3, 1e5)):
        draws = draws_of(dist.Dirichlet, (alpha,), "constant", seed, rows=10_000)
        np.testing.assert_allclose(draws.sum(axis=1), 1.0, rtol=1e-12)
        assert np.all(draws >= 0)


# Wrappers ------------------------------------------------------------------------------------------------

LOCS = np.array([-1.0, 0.5, 30.0])
CHANCES = np.array([0.1, 0.5, 0.9])
ANGLES = np.array([-1.0, 0.5, 2.0])


def shifted(law, by):
    return Transformed(law, transforms.AffineTransform(by, 1.0))


# (function, arguments, SciPy's law of the entry with flat index i)
WRAPPED = {
    "to-event": (lambda m: dist.Normal(m, 2.0).to_event(1), (LOCS,), lambda i: stats.norm(LOCS[i], 2.0)),
    "expand": (lambda m: dist.Gumbel(m, 2.0).expand([3]), (1.5,), lambda i: stats.gumbel_r(1.5, 2.0)),
    "expand-to-event": (
        lambda m: dist.LogNormal(m, 0.5).expand([3]).to_event(1),
        (1.5,),
        lambda i: stats.lognorm(0.5, scale=np.exp(1.5)),
    ),
    "expand-a-batch": (
        lambda m: dist.Normal(m[:, None], 1.0).expand([3, 2]).to_event(2),
        (LOCS,),
        lambda i: stats.norm(LOCS[i // 2], 1.0),
    ),
    "truncated-batch": (
        lambda m: dist.TruncatedNormal(m, 1.0, low=0.0).expand([2, 3]),
        (LOCS,),
        lambda i: stats.truncnorm(-LOCS[i % 3], np.inf, LOCS[i % 3]),
    ),
    "counts": (lambda p: dist.Binomial(10, probs=p).to_event(1), (CHANCES,), lambda i: stats.binom(10, CHANCES[i])),
    "categories": (
        lambda p: dist.Categorical(probs=jnp.stack([p, 1 - p], axis=-1)).to_event(1),
        (CHANCES,),
        lambda i: stats.bernoulli(1 - CHANCES[i]),
    ),
    "expanded-transformed": (
        lambda m, s: affine_exp(m, s).expand([3]).to_event(1),
        (0.5, 0.3),
        lambda i: stats.lognorm(0.3, scale=np.exp(0.5)),
    ),
    "transformed-expanded": (
        lambda m, s: Transformed(dist.Laplace(m, 1.0).expand([3]).to_event(1), transforms.AffineTransform(LOCS, s)),
        (0.5, 2.0),
        lambda i: stats.laplace(LOCS[i] + 1.0, 2.0),
    ),
    "transformed-twice": (
        lambda m, s: shifted(nested(m, s).expand([3]), LOCS).to_event(1),
        (1.0, 2.0),
        lambda i: stats.gamma(2.0, loc=1.0 + LOCS[i], scale=2.0 / 1.5),
    ),
    "transform-of-a-vector": (
        lambda m, tril: Transformed(
            dist.Normal(jnp.zeros(3), 1.0).to_event(1), transforms.LowerCholeskyAffine(m, tril)
        ),
        (LOCS, np.diag([1.0, 2.0, 3.0])),
        lambda i: stats.norm(LOCS[i], i + 1.0),
    ),
    "fallback": (
        lambda m: dist.VonMises(m, 3.0).expand([2, 3]).to_event(1),
        (ANGLES,),
        lambda i: stats.vonmises(3.0, loc=ANGLES[i % 3]),
    ),
}


@one_path
@pytest.mark.parametrize(("function", "arguments", "entry"), WRAPPED.values(), ids=WRAPPED)
def test_wrapped_laws_entry_by_entry(function, arguments, entry, path, seed):
    law, values = law_of(function, arguments, path)
    rows = PILOT + 30_000
    draws = law.draw(np.random.default_rng(seed), values(rows), rows)
    assert draws.shape == (rows, *law.form.shape)
    assert law.form.shape == function(*arguments).shape()
    entries = draws.reshape(rows, -1)
    for i, column in enumerate(entries.T):
        assert in_counts(column, entry(i).logpmf) if law.form.discrete else in_bins(column, entry(i).logpdf)
    for first, second in pairwise(entries.T):
        assert uncorrelated(first, second)


@both_paths
def test_delta_of_a_vector(path, seed):
    values = np.array([1.0, 2.5, -3.0])
    draws = draws_of(lambda v: dist.Delta(v, event_dim=1), (values,), path, seed, rows=5)
    np.testing.assert_array_equal(draws, np.broadcast_to(values, (5, 3)))


# Independence --------------------------------------------------------------------------------------------


def uncorrelated(first, second):
    """Whether independent pairs have no rank correlation, within Monte Carlo error; constants never qualify."""
    first, second = stats.rankdata(first), stats.rankdata(second)
    if first.std() == 0 or second.std() == 0:
        return False
    return bool(abs(np.corrcoef(first, second)[0, 1]) * np.sqrt(len(first)) < LIMIT)


def lanes_independent(draws):
    """No correlation between neighbouring rows, nor neighbouring columns, nor a matrix and its transpose."""
    verdicts = [uncorrelated(draws[:-1].ravel(), draws[1:].ravel())]
    if draws.ndim == 2:
        verdicts.append(uncorrelated(draws[:, :-1].ravel(), draws[:, 1:].ravel()))
        if draws.shape[0] == draws.shape[1]:
            upper = np.triu_indices(len(draws), 1)
            verdicts.append(uncorrelated(draws[upper], draws.T[upper]))
    return all(verdicts)


LENGTH = 200
# The same parameters in every lane; vectors as long as the batch, where broadcasting the wrong axis goes unnoticed.
LANES = {
    "scalar": (dist.Normal, (0.0, 1.0), 40_000),
    "vector": (lambda m: dist.Normal(m, 1.0).expand([LENGTH]), (0.0,), LENGTH),
    "vector-event": (lambda m, s: dist.Gamma(m * jnp.ones(LENGTH), s).to_event(1), (2.0, 1.0), LENGTH),
    "transformed": (affine_exp, (0.0, 1.0), 40_000),
    "transformed-vector": (lambda m, s: affine_exp(m, s).expand([LENGTH]).to_event(1), (0.0, 1.0), LENGTH),
    "multivariate": (
        lambda m: dist.MultivariateNormal(m * jnp.ones(LENGTH), scale_tril=jnp.eye(LENGTH)),
        (0.0,),
        LENGTH,
    ),
    "fallback": (dist.Kumaraswamy, (2.0, 3.0), 40_000),
    "fallback-vector": (lambda a: dist.Kumaraswamy(a, 3.0).expand([LENGTH]), (2.0,), LENGTH),
    "fallback-vector-event": (lambda m: dist.VonMises(m * jnp.ones(LENGTH), 3.0).to_event(1), (0.5,), LENGTH),
}


@one_path
@pytest.mark.parametrize(("function", "arguments", "rows"), LANES.values(), ids=LANES)
def test_lanes_of_equal_parameters_are_independent(function, arguments, rows, path, seed):
    assert lanes_independent(draws_of(function, arguments, path, seed, rows))


@pytest.mark.parametrize("shape", [(), (LENGTH,)])
def test_negative_control_one_key_for_every_lane(shape, seed):
    # What `.sample` inside a vmap does: a law's batch shape is not seen there.
    key = jax.random.key(seed)
    naive = jax.vmap(lambda m: dist.Normal(m, 1.0).expand(shape).sample(key))(jnp.zeros(LENGTH))
    assert not lanes_independent(np.asarray(naive))


def test_two_calls_continue_the_stream_and_one_seed_repeats_it(seed):
    for function, arguments in (CONTINUOUS["normal"], FALLBACK["kumaraswamy"]):
        law, values = law_of(function, arguments, "function")
        rng = np.random.default_rng(seed)
        first, second = law.draw(rng, values(10_000), 10_000), law.draw(rng, values(10_000), 10_000)
        assert uncorrelated(first, second)
        np.testing.assert_array_equal(first, law.draw(np.random.default_rng(seed), values(10_000), 10_000))


# Each row has its own parameters -------------------------------------------------------------------------

ALIGNED = {
    "table": lambda theta: dist.Normal(theta * jnp.arange(LENGTH), 1.0),
    "transformed": lambda theta: Transformed(
        dist.Normal(jnp.zeros(LENGTH), 1.0), transforms.AffineTransform(theta * jnp.arange(LENGTH), 1.0)
    ),
    "fallback": lambda theta: dist.SoftLaplace(theta * jnp.arange(LENGTH), 1.0).to_event(1),
}


@pytest.mark.parametrize("function", ALIGNED.values(), ids=ALIGNED)
def test_every_row_is_drawn_with_its_own_parameters(function, seed):
    law = Law(WHO, function, ("theta",), {"theta": jax.ShapeDtypeStruct((), np.float64)})
    theta = np.linspace(-3.0, 5.0, LENGTH)
    residual = law.draw(np.random.default_rng(seed), {"theta": theta}, LENGTH) - theta[:, None] * np.arange(LENGTH)
    assert agrees(residual, 0.0)  # by column, over rows
    assert agrees(residual.T, 0.0)  # by row, over columns
    assert np.abs(residual).max() < 50


RECORDS = {
    "constant": (lambda: dist.Normal(2.0, 1.0), (), lambda x, beta: 2.0 + 0 * x),
    "outer": (lambda beta: dist.Normal(beta, 1.0), ("beta",), lambda x, beta: beta[:, None] + 0 * x),
    "inner": (lambda x: dist.Normal(x, 1.0), ("x",), lambda x, beta: x),
    "both": (lambda x, beta: dist.Normal(beta * x, 1.0), ("x", "beta"), lambda x, beta: beta[:, None] * x),
    "transformed-outer": (
        lambda beta: Transformed(dist.Normal(0.0, 1.0), transforms.AffineTransform(beta, 1.0)),
        ("beta",),
        lambda x, beta: beta[:, None] + 0 * x,
    ),
    "transformed-both": (
        lambda x, beta: Transformed(dist.Normal(0.0, 1.0), transforms.AffineTransform(beta * x, 1.0)),
        ("x", "beta"),
        lambda x, beta: beta[:, None] * x,
    ),
    "fallback-constant": (lambda: dist.SoftLaplace(2.0, 1.0), (), lambda x, beta: 2.0 + 0 * x),
    "fallback-outer": (lambda beta: dist.SoftLaplace(beta, 1.0), ("beta",), lambda x, beta: beta[:, None] + 0 * x),
    "fallback-both": (
        lambda x, beta: dist.SoftLaplace(beta * x, 1.0),
        ("x", "beta"),
        lambda x, beta: beta[:, None] * x,
    ),
}


@pytest.mark.parametrize(("function", "parents", "mean"), RECORDS.values(), ids=RECORDS)
def test_records_are_drawn_row_by_row(function, parents, mean, seed):
    rng = np.random.default_rng(seed)
    x, beta = rng.standard_normal((LENGTH, LENGTH)), np.linspace(-20.0, 30.0, LENGTH)
    known = {name: jax.ShapeDtypeStruct((), np.float64) for name in parents}
    law = Law(WHO, function, parents, known, inner=frozenset({"x"}))
    given = {"x": x, "beta": beta}
    residual = law.draw(rng, {name: given[name] for name in parents}, LENGTH, LENGTH) - mean(x, beta)
    assert residual.shape == (LENGTH, LENGTH)
    assert agrees(residual, 0.0)
    assert agrees(residual.T, 0.0)
    assert lanes_independent(residual)


# Bad parameters ------------------------------------------------------------------------------------------


def shifted_gamma(theta):
    return Transformed(dist.Gamma(2.0, theta), transforms.AffineTransform(1.0, 2.0))


# (law, a value of theta it cannot be drawn at, the attribute at fault or what the message says of it)
BAD = {
    "negative scale": (lambda theta: dist.Normal(0.0, theta), -1.5, "'scale' must be positive"),
    "zero scale": (lambda theta: dist.Laplace(0.0, theta), 0.0, "'scale' must be positive"),
    "infinite scale": (lambda theta: dist.HalfCauchy(theta), np.inf, "'scale' must be positive"),
    "nan location": (lambda theta: dist.Normal(theta, 1.0), np.nan, "'loc' must be finite"),
    "nan rate": (lambda theta: dist.Gamma(1.0, theta), np.nan, "'rate' must be positive"),
    "negative rate": (lambda theta: dist.Poisson(theta), -0.25, "'rate' must be non-negative"),
    "probability": (lambda theta: dist.Bernoulli(probs=theta), 1.2, "'probs' must be a probability"),
    "negative probability": (lambda theta: dist.Binomial(5, probs=theta), -0.01, "'probs' must be a probability"),
    "nan logit": (lambda theta: dist.Bernoulli(logits=theta), np.nan, "'logits' must be a number"),
    "gate": (lambda theta: dist.ZeroInflatedPoisson(theta, 1.0), 1.2, "'gate' must be a probability"),
    "uniform bounds": (lambda theta: dist.Uniform(theta, 2.0), 2.5, "'low' must be below 'high'"),
    "truncation bounds": (
        lambda theta: dist.TruncatedNormal(0.0, 1.0, low=theta, high=2.0),
        2.5,
        "'low' must be below",
    ),
    "fraction of trials": (lambda theta: dist.Binomial(theta, 0.5), 2.5, "'total_count' must be a non-negative whole"),
    "infinite trials": (lambda theta: dist.Binomial(theta, 0.5), np.inf, "'total_count' must be"),
    "simplex": (lambda theta: dist.Categorical(probs=jnp.stack([0.75 * theta, 0.25])), 1.2, "sum to 1"),
    "dirichlet": (lambda theta: dist.Dirichlet(jnp.stack([1.0, theta])), -1.0, "'concentration' must be positive"),
    "inside a vector": (lambda theta: dist.Normal(0.0, jnp.stack([1.0, theta])).to_event(1), -1.5, "got -1.5"),
    "inside a transform": (shifted_gamma, -1.5, "'rate' must be positive"),
    "vector of bounds": (lambda theta: dist.Uniform(0.0, jnp.stack([1.0, theta])), -1.5, "'low' must be below 'high'"),
    "rate beyond 64-bit counts": (lambda theta: dist.Poisson(theta), 1e20, ""),
    "no category": (lambda theta: dist.Categorical(logits=jnp.stack([theta, theta])), -np.inf, "'logits'"),
    "fallback": (lambda theta: dist.Kumaraswamy(theta, 2.0), -1.5, ""),
    "fallback nan": (lambda theta: dist.VonMises(0.0, theta), np.nan, ""),
    "geometric that never ends": (lambda theta: dist.Geometric(probs=theta), 0.0, ""),
}


@pytest.mark.parametrize(("function", "bad", "says"), BAD.values(), ids=BAD)
def test_bad_parameters_name_the_parents_value(function, bad, says, seed):
    law = Law(WHO, function, ("theta",), {"theta": jax.ShapeDtypeStruct((), np.float64)})
    theta = np.array([1.0, 1.0, bad, 1.0])
    with pytest.raises(InputError) as caught:
        law.draw(np.random.default_rng(seed), {"theta": theta}, 4)
    message = str(caught.value)
    assert message.startswith(f"{WHO}: the law cannot be drawn from at theta={bad}:"), message
    assert says in message, message


def test_bad_constants_are_refused_too(seed):
    law = Law(WHO, constant_law(dist.Normal(0.0, np.array([1.0, -1.5]), validate_args=False), WHO), (), {})
    with pytest.raises(InputError, match=r"prior 'x': the law cannot be drawn from: 'scale' must be .*, got -1\.5"):
        law.draw(np.random.default_rng(seed), {}, 4)


# (law of a theta that is 1 + 1e-9, what every draw must then be)
ROUNDED = {
    "bernoulli": (lambda theta: dist.Bernoulli(probs=theta), 1),
    "bernoulli below": (lambda theta: dist.Bernoulli(probs=1 - theta), 0),
    "binomial": (lambda theta: dist.Binomial(7, probs=theta), 7),
    "geometric": (lambda theta: dist.Geometric(probs=theta), 0),
    "zero-inflated": (lambda theta: dist.ZeroInflatedPoisson(theta, 5.0), 0),
    "categorical": (lambda theta: dist.Categorical(probs=jnp.stack([0 * theta, theta])), 1),
    "multinomial": (lambda theta: dist.Multinomial(5, probs=jnp.stack([1 - theta, theta])), [0, 5]),
}


@pytest.mark.parametrize(("function", "expected"), ROUNDED.values(), ids=ROUNDED)
def test_probabilities_off_by_rounding_are_clipped(function, expected, seed):
    law = Law(WHO, function, ("theta",), {"theta": jax.ShapeDtypeStruct((), np.float64)})
    draws = law.draw(np.random.default_rng(seed), {"theta": np.full(50, 1 + 1e-9)}, 50)
    np.testing.assert_array_equal(draws, np.broadcast_to(expected, draws.shape))
