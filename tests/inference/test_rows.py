"""Very many rows: likelihood and derivatives beside integrals written apart, on any engine, and their own error."""

from functools import cache
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from targets import briefly

import noisewise as nw
from noisewise.inference.conditional import row_blocks, row_panels
from noisewise.inference.conditional.rows import NoisyRows, RowSource
from noisewise.numerics import Compiled

X = np.linspace(-1.0, 1.0, 40)
POINT = np.array([0.7, 1.3])
SCALES = np.linspace(0.3, 2.0, 40)
CASES = {
    "Student t, Laplace": (lambda a, b: dist.StudentT(4.0, a * jnp.asarray(X), b), nw.Laplace(scale=SCALES), "real"),
    "Gumbel, Gaussian": (lambda a, b: dist.Gumbel(a * jnp.asarray(X), b), nw.Gaussian(scale=0.8), "real"),
    "Weibull, Laplace": (lambda a, b: dist.Weibull(a * jnp.exp(jnp.asarray(X)), b), nw.Laplace(scale=0.5), "positive"),
    "Cauchy, Laplace": (lambda a, b: dist.Cauchy(a * jnp.asarray(X), b), nw.Laplace(scale=1.0), "real"),
}
DENSITIES = {
    "Student t, Laplace": lambda s, i: stats.t.pdf(s, 4.0, POINT[0] * X[i], POINT[1]),
    "Gumbel, Gaussian": lambda s, i: stats.gumbel_r.pdf(s, POINT[0] * X[i], POINT[1]),
    "Weibull, Laplace": lambda s, i: stats.weibull_min.pdf(s, POINT[1], scale=POINT[0] * np.exp(X[i])),
    "Cauchy, Laplace": lambda s, i: stats.cauchy.pdf(s, POINT[0] * X[i], POINT[1]),
}


def given_at(x):
    return {"a": x[0], "b": x[1]}


@cache
def programs(case):
    return {}


def rows_of(case, engine=None, releases=None):
    law, mechanism, chart = CASES[case]
    released = np.linspace(-3.0, 9.0, 40) if releases is None else releases
    kind = case.split(",")[0].replace(" t", "T")

    def compiled(purpose, build):
        return programs(case).setdefault(purpose, Compiled(build))

    return NoisyRows(RowSource(lambda given: law(**given), mechanism, released, (40,), kind, chart, compiled), engine)


def integral(case, i, released):
    _, mechanism, chart = CASES[case]
    scale = float(np.broadcast_to(mechanism.scale, 40)[i])
    noise = stats.norm(0.0, scale) if isinstance(mechanism, nw.Gaussian) else stats.laplace(0.0, scale)
    law = DENSITIES[case]
    ends = [released - 40.0 * scale, released, released + 40.0 * scale]
    ends = sorted({*ends, *(at for at in (0.0, 0.5, POINT[0] * X[i], 3.0) if ends[0] < at < ends[-1])})
    ends = [end for end in ends if chart == "real" or end >= 0.0] if chart != "real" else ends

    def integrand(s):
        return law(s, i) * noise.pdf(released - s)

    return sum(integrate.quad(integrand, *ends, epsabs=1e-15, epsrel=1e-12, limit=400)[0] for ends in pairwise(ends))


@pytest.mark.parametrize("case", briefly(list(CASES), ["Student t, Laplace", "Weibull, Laplace"]))
def test_the_likelihood_of_every_row_is_its_integral(case):
    own = rows_of(case)
    found = own.log_likelihoods(given_at(POINT))
    for i in (0, 13, 27, 39):
        truth = integral(case, i, np.linspace(-3.0, 9.0, 40)[i])
        assert np.exp(found[i]) == pytest.approx(truth, rel=2e-9)
    assert own.errors.max() < 1e-9


@pytest.mark.parametrize("case", briefly([case for case in CASES if "Cauchy" not in case], ["Student t, Laplace"]))
def test_derivatives_are_those_of_the_likelihood(case):
    own = rows_of(case)
    moments = own.moments(POINT, given_at, "as they are")
    assert moments.log_likelihoods == pytest.approx(own.log_likelihoods(given_at(POINT)), abs=1e-12)
    for a, move in enumerate(1e-5 * np.eye(2)):
        ends = [own.log_likelihoods(given_at(POINT + side * move)).sum() for side in (-1.0, 1.0)]
        assert moments.score[a] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-6, abs=1e-6)
        scores = [own.moments(POINT + side * move, given_at, "as they are").score for side in (-1.0, 1.0)]
        assert moments.information[a] == pytest.approx((scores[0] - scores[1]) / 2e-5, rel=1e-5, abs=1e-5)
    assert np.linalg.eigvalsh(moments.complete - moments.information).min() > 0  # noise takes information


def test_derivatives_of_laws_that_bend():
    """Attributes that are curved in the parameters: Newton's information has a term for it."""
    own, x = rows_of("Student t, Laplace"), np.array([0.8, 0.3])

    def bent(x):
        return {"a": x[0] ** 2, "b": jnp.exp(x[1])}

    moments = own.moments(x, bent, "bent")
    for a, move in enumerate(1e-5 * np.eye(2)):
        scores = [own.moments(x + side * move, bent, "bent").score for side in (-1.0, 1.0)]
        assert moments.information[a] == pytest.approx((scores[0] - scores[1]) / 2e-5, rel=1e-5, abs=1e-5)


def test_blocks_and_engines_change_nothing(monkeypatch):
    """Of forty rows in blocks of sixteen; an accelerator, here the processor, has its own order of work."""
    case = "Student t, Laplace"
    whole = rows_of(case).moments(POINT, given_at, "as they are")
    monkeypatch.setattr(row_blocks, "BLOCK", 16)
    first, second = (
        rows_of(case, engine).moments(POINT, given_at, "as they are") for engine in (nw.Threads(1), nw.Threads(2))
    )
    assert np.array_equal(first.log_likelihoods, second.log_likelihoods)
    assert np.array_equal(first.information, second.information)
    assert first.log_likelihoods == pytest.approx(whole.log_likelihoods, abs=1e-12)
    device = rows_of(case, nw.Device(platform="cpu")).moments(POINT, given_at, "as they are")
    assert device.score == pytest.approx(whole.score, rel=1e-11)
    assert device.information == pytest.approx(whole.information, rel=1e-11)


def test_panels_are_kept_while_the_law_hardly_moves():
    own = rows_of("Student t, Laplace")
    own.log_likelihoods(given_at(POINT))
    laid = own.panels
    own.log_likelihoods(given_at(POINT + 0.01))
    assert own.panels is laid
    own.log_likelihoods(given_at(POINT + 0.5))
    assert own.panels is not laid


def test_a_window_that_is_too_short_says_so(monkeypatch):
    """Negative control: what is left outside is an error of the row."""
    monkeypatch.setattr(row_panels, "DEEP", 3.0)
    programs.cache_clear()
    own = rows_of("Student t, Laplace")
    own.log_likelihoods(given_at(POINT))
    assert own.errors.max() > 1e-6
    programs.cache_clear()


def test_a_panel_across_the_kink_is_not_confirmed(monkeypatch):
    """Negative control: orders rise where the noise's kink lies within a panel, and the error is told."""
    monkeypatch.setattr(row_panels, "_cuts", lambda kink, low, high: [low, high])
    programs.cache_clear()
    own = rows_of("Student t, Laplace")
    own.log_likelihoods(given_at(POINT))
    assert own.panels.order > 64
    assert own.errors.max() > 1e-8
    programs.cache_clear()


def test_rows_far_out_have_their_likelihood():
    """A release a hundred scales away, where the law's tail is all there is."""
    far = np.linspace(-3.0, 9.0, 40)
    far[5] = 60.0
    found = rows_of("Student t, Laplace", releases=far).log_likelihoods(given_at(POINT))
    assert np.exp(found[5]) == pytest.approx(integral("Student t, Laplace", 5, 60.0), rel=1e-8)
