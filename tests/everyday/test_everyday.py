"""Means, shares, differences and tables: the models one would write by hand, and posteriors by enumeration."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, z_scores
from scipy import stats
from scipy.special import logsumexp
from written_models import assert_same

import noisewise as nw

LAPLACE = nw.Laplace(scale=3.0)
GEOMETRIC = nw.DiscreteLaplace(scale=2.0)
RELEASE = nw.Release(
    total=nw.Laplace(scale=20.0).released(310.0),
    squares=nw.Laplace(scale=900.0).released(11_000.0),
    average=nw.Laplace(scale=2.0).released(31.0),
    people=GEOMETRIC.released(11),
    yes=GEOMETRIC.released(4),
    asked=GEOMETRIC.released(9),
    counts=LAPLACE.released([3.4, 8.8, -1.0], coords={"answer": ["yes", "no", "unsure"]}),
    grid=LAPLACE.released(np.ones((2, 2)), coords={"sex": ["f", "m"], "age": ["young", "old"]}),
)


def clip(value):
    return jnp.clip(value, 0.0, 80.0)


def by_hand():
    """Each everyday model as text of a call, what it reads of the release, and the same by hand."""
    normal = {"record": lambda mean, sd: dist.Normal(mean, sd)}
    prior = {"mean": dist.Normal(40.0, 80.0), "sd": dist.HalfNormal(40.0)}
    both = nw.Total(normal, lambda record: jnp.stack([clip(record), clip(record) ** 2]), n="people")
    lognormal = {"record": lambda mean, sigma: dist.LogNormal(jnp.log(mean) - sigma**2 / 2, sigma)}
    return {
        "a mean from a sum": (
            lambda: nw.mean_of(RELEASE, "total", n=10, bounds=(0, 80)),
            ["total"],
            lambda: nw.Model(prior, {"total": nw.Total(normal, lambda record: clip(record), n=10)}),
        ),
        "a mean with a noisy number": (
            lambda: nw.mean_of(RELEASE, "total", squares="squares", n="people", most=30, bounds=(0, 80)),
            ["total", "squares", "people"],
            lambda: nw.Model(
                prior,
                {
                    "people": dist.DiscreteUniform(1, 30),
                    "sums": both,
                    "total": lambda sums: dist.Delta(sums[0]),
                    "squares": lambda sums: dist.Delta(sums[1]),
                },
            ),
        ),
        "a mean that was released as one": (
            lambda: nw.mean_of(RELEASE, mean="average", n=10, bounds=(0, 80), law="LogNormal"),
            ["average"],
            lambda: nw.Model(
                {"mean": dist.LogNormal(3.69, 1.0), "sigma": dist.HalfNormal(1.0)},
                {"average": nw.Total(lognormal, lambda record: clip(record) / 10, n=10)},
            ),
        ),
        "a share": (
            lambda: nw.share_of(RELEASE, "yes", n="asked", most=40, prior={"share": dist.Beta(2.0, 3.0)}),
            ["yes", "asked"],
            lambda: nw.Model(
                {"share": dist.Beta(2.0, 3.0)},
                {
                    "asked": dist.DiscreteUniform(1, 40),
                    "yes": lambda asked, share: dist.Binomial(asked, share),
                },
            ),
        ),
        "a difference": (
            lambda: nw.difference(
                a=nw.mean_of(RELEASE, "total", n=10, bounds=(0, 80)),
                b=nw.mean_of(RELEASE, mean="average", n=20, bounds=(0, 80)),
            ),
            ["total", "average"],
            lambda: nw.Model(
                {f"{name}_{group}": law for group in "ab" for name, law in prior.items()},
                {
                    "total": nw.Total({"x": lambda mean_a, sd_a: dist.Normal(mean_a, sd_a)}, lambda x: clip(x), n=10),
                    "average": nw.Total(
                        {"y": lambda mean_b, sd_b: dist.Normal(mean_b, sd_b)}, lambda y: clip(y) / 20, n=20
                    ),
                },
                derived={"difference": lambda mean_a, mean_b: mean_a - mean_b},
            ),
        ),
        "a table of shares": (
            lambda: nw.table_of(RELEASE, "counts", n=12),
            ["counts"],
            lambda: nw.Model(
                {"share": lambda: dist.Dirichlet(jnp.ones(3))},
                {"counts": lambda share: dist.Multinomial(12, share)},
                dims={"share": ("answer",)},
            ),
        ),
        "a table of rates": (
            lambda: nw.table_of(RELEASE, "grid", prior={"rate": dist.Gamma(2.0, 0.1)}),
            ["grid"],
            lambda: nw.Model(
                {"rate": dist.Gamma(2.0, 0.1).expand([2, 2])},
                {"grid": lambda rate: dist.Poisson(rate)},
                derived={"share": lambda rate: rate / rate.sum()},
                dims={"rate": ("sex", "age")},
            ),
        ),
    }


CASES = by_hand()


@pytest.mark.parametrize("case", CASES)
def test_same_draws_as_the_model_by_hand_and_as_the_printed_code(case):
    make, entries, hand = CASES[case]
    assert_same(make(), hand(), RELEASE.select(*entries))


def test_what_the_release_says_of_itself_need_not_be_said_again():
    total = RELEASE["total"].described(bounds=(0.0, 80.0), records=10)
    release = nw.Release(total=total, yes=RELEASE["yes"].described(records=40))
    assert nw.mean_of(release, "total").code == nw.mean_of(RELEASE, "total", n=10, bounds=(0, 80)).code
    assert nw.mean_of(release, "total", n=10, bounds=(0, 80)).code == nw.mean_of(release, "total").code
    assert nw.share_of(release, "yes").code == nw.share_of(RELEASE, "yes", n=40).code


def test_labels_of_a_table_are_those_of_its_parameters():
    posterior = nw.sample(
        nw.table_of(RELEASE, "grid"), RELEASE.select("grid"), nw.Importance(), draws=50, seed=1, on_failure="return"
    )
    assert {"rate[f,young]", "share[m,old]"} <= set(posterior.summary().index)
    assert posterior["share"].sum(axis=(1, 2)) == pytest.approx(1.0)


def test_a_model_by_hand_has_no_code():
    assert nw.Model({"p": dist.Beta(1.0, 1.0)}, {"x": lambda p: dist.Binomial(5, p)}).code == ""


@pytest.mark.parametrize(
    ("law", "second"),
    [("Normal", "sd"), ("LogNormal", "sigma"), ("Gamma", "shape"), ("Exponential", None), ("Beta", "size")],
)
def test_every_law_of_a_record_has_the_mean_it_is_written_with(law, second):
    """And contributes to the sum what lies between the bounds."""
    model = nw.mean_of(RELEASE, "total", n=10, bounds=(2.0, 12.0), law=law)
    total = model.total("total").total
    given = {"mean": 5.0} | ({second: 1.7} if second else {})
    mean = float(total.record["record"](**given).mean)
    if law == "Beta":
        mean = 2.0 + 10.0 * mean
        assert total.contribution(record=0.25) == pytest.approx(4.5)
    else:
        assert [float(total.contribution(record=x)) for x in (0.5, 7.0, 99.0)] == [2.0, 7.0, 12.0]
    assert mean == pytest.approx(5.0, rel=1e-6)


# Against enumeration and quadrature -------------------------------------------------------------------------------


class Seen(dict):
    """A function of the draws, as a posterior has it."""

    def __init__(self, posterior, values):
        super().__init__(value=values)
        self.weights = posterior.weights


def agrees(posterior, values, mean, variance):
    return np.abs(z_scores(Seen(posterior, values), "value", mean, variance)).max() < LIMIT


def moments(log_weights, mean, variance=0.0):
    """Mean and variance of a mixture."""
    weights = np.exp(log_weights - logsumexp(log_weights))
    centre = np.sum(weights * mean)
    return centre, np.sum(weights * (variance + (mean - centre) ** 2))


def beta_moments(a, b):
    mean = a / (a + b)
    return mean, mean * (1 - mean) / (a + b + 1)


def of_share(n, released, scale):
    """Share and its variance from a Laplace count of n, all shares alike: counts are then uniform on 0, ..., n."""
    k = np.arange(n + 1.0)
    return moments(-np.abs(released - k) / scale, *beta_moments(k + 1, n - k + 1))


def test_share_by_enumeration():
    release = nw.Release(yes=nw.Laplace(scale=5.0).released(31.2))
    posterior = nw.sample(nw.share_of(release, "yes", n=60), release, draws=4_000, seed=1)
    assert agrees(posterior, posterior["share"], *of_share(60, 31.2, 5.0))
    assert not agrees(posterior, posterior["share"], *of_share(55, 31.2, 5.0))


def test_share_of_a_noisy_number_by_enumeration():
    release = RELEASE.select("yes", "asked")
    posterior = nw.sample(nw.share_of(release, "yes", n="asked", most=40), release, draws=4_000, seed=1)
    n, k = np.meshgrid(np.arange(1.0, 41.0), np.arange(41.0), indexing="ij")
    height = -np.abs(9 - n) / 2.0 - np.abs(4 - k) / 2.0 - np.log(n + 1)  # P(k | n) = 1 / (n + 1)
    height = np.where(k <= n, height, -np.inf)
    with np.errstate(invalid="ignore"):
        mean, variance = (np.where(k <= n, x, 0.0) for x in beta_moments(k + 1, n - k + 1))
    assert agrees(posterior, posterior["share"], *moments(height, mean, variance))
    assert agrees(posterior, posterior["asked"], *moments(height, n))


def test_two_arms_of_a_trial_by_enumeration():
    noise = nw.Laplace(epsilon=0.2, sensitivity=1.0)
    release = nw.Release(events_treated=noise.released(31.2), events_control=noise.released(52.9))
    model = nw.difference(
        treated=nw.share_of(release, "events_treated", n=210), control=nw.share_of(release, "events_control", n=198)
    )
    posterior = nw.sample(model, release, draws=4_000, seed=1)
    (p, v), (q, w) = of_share(210, 31.2, 5.0), of_share(198, 52.9, 5.0)
    assert agrees(posterior, posterior["share_treated"], p, v)
    assert agrees(posterior, posterior["difference"], p - q, v + w)
    assert np.array_equal(posterior["difference"], posterior["share_treated"] - posterior["share_control"])


def test_table_of_shares_by_enumeration():
    release = RELEASE.select("counts")
    posterior = nw.sample(nw.table_of(release, "counts", n=12), release, draws=4_000, seed=1)
    a, b = (axis.ravel().astype(float) for axis in np.meshgrid(np.arange(13), np.arange(13), indexing="ij"))
    k = np.stack([a, b, 12 - a - b])
    height = np.where(k[2] >= 0, -np.abs(np.array([[3.4], [8.8], [-1.0]]) - k).sum(axis=0) / 3.0, -np.inf)
    for cell in range(3):
        own = np.where(k[2] >= 0, k[cell], 0.0)
        mean, variance = moments(height, *beta_moments(own + 1, 14 - own))  # Dirichlet(1, 1, 1), then k
        assert agrees(posterior, posterior["share"][:, cell], mean, variance)


def test_table_of_rates_by_quadrature():
    release = nw.Release(counts=LAPLACE.released([3.4, 28.8]))
    posterior = nw.sample(nw.table_of(release, "counts"), release, draws=4_000, seed=1)
    u = np.linspace(-12.0, 8.0, 801)
    k = np.arange(200.0)
    for cell, released in enumerate([3.4, 28.8]):
        law = stats.poisson.logpmf(k, np.exp(u)[:, None]) - np.abs(released - k) / 3.0
        height = stats.norm.logpdf(u, 4.0, 2.5) + logsumexp(law, axis=1)
        mean, variance = moments(height, np.exp(u))
        assert agrees(posterior, posterior["rate"][:, cell], mean, variance)


def test_table_with_a_noisy_total_by_enumeration():
    """Two cells and their sum, each measured: rates have gamma laws given the counts."""
    release = nw.Release(
        counts=LAPLACE.released([3.4, 8.8]), people=nw.Laplace(scale=0.5).of("counts", sum=True).released(18.2)
    )
    prior = {"rate": dist.Gamma(2.0, 0.2)}
    model = nw.table_of(release, "counts", n="people", prior=prior)
    assert model.code == nw.table_of(release, "counts", prior=prior).code
    posterior = nw.sample(model, release, draws=4_000, seed=1)
    k = np.arange(120.0)
    law = stats.nbinom.logpmf(k, 2.0, 0.2 / 1.2)  # rates integrated out
    noise = [-np.abs(released - k) / 3.0 for released in (3.4, 8.8)]
    apart = (law + noise[0])[:, None] + law + noise[1]
    height = apart - np.abs(18.2 - (k[:, None] + k)) / 0.5
    for cell, count in enumerate((k[:, None] + 0 * k, 0 * k[:, None] + k)):
        given = (count + 2.0) / 1.2, (count + 2.0) / 1.2**2
        assert agrees(posterior, posterior["rate"][:, cell], *moments(height, *given))
        assert not agrees(posterior, posterior["rate"][:, cell], *moments(apart, *given))  # as if without the total
    assert posterior["share"].sum(axis=1) == pytest.approx(1.0)


def test_mean_of_a_noisy_number_by_characteristic_functions():
    """Exponential records clamped to [0, 60]: their sum's density by inversion, for each number and mean."""
    release = nw.Release(
        total=nw.Gaussian(scale=25.0).released(310.0), people=nw.DiscreteLaplace(scale=2.0).released(11)
    )
    model = nw.mean_of(release, "total", n="people", most=30, bounds=(0, 60), law="Exponential")
    posterior = nw.sample(model, release, draws=4_000, seed=1)

    def truth(bound):
        u, n, t = np.linspace(-1.0, 9.0, 201), np.arange(1, 31), np.linspace(0.0, 0.28, 281)
        rate = np.exp(-u)[:, None]
        left = np.exp(-(rate - 1j * t) * bound)
        wave = rate / (rate - 1j * t) * (1 - left) + left
        turned = wave[:, None] ** n[:, None] * np.exp(-0.5 * (25.0 * t) ** 2 - 310j * t)
        density = np.trapezoid(turned.real, t) / np.pi
        prior = stats.norm.logpdf(u, float(f"{np.log(30.0):.3g}"), 1.0)[:, None]
        height = prior + np.log(np.maximum(density, 1e-300)) - np.abs(11 - n) / 2.0
        return moments(height, u[:, None] + 0 * n), moments(height, n + 0 * u[:, None])

    log_mean, people = truth(60.0)
    assert agrees(posterior, np.log(posterior["mean"]), *log_mean)
    assert agrees(posterior, posterior["people"], *people)
    assert not agrees(posterior, np.log(posterior["mean"]), *truth(1e6)[0])  # as if nothing had been clamped
