"""Guarantees: composition, conversion, the neighbour relation."""

import math

import numpy as np
import pytest
from privacy_audit import gaussian_delta, hockey_stick, pair_of
from scipy.optimize import brentq

import noisewise as nw
from noisewise.mechanisms.guarantee import Guarantee


@pytest.mark.quick
def test_epsilon_and_delta_add():
    total = Guarantee(epsilon=0.5, delta=1e-6) + Guarantee(epsilon=0.2) + Guarantee(epsilon=0.3, delta=2e-6)
    assert total.epsilon == pytest.approx(1.0)
    assert total.delta == pytest.approx(3e-6)
    assert Guarantee(epsilon=0.5) + Guarantee(epsilon=0.25) == Guarantee(epsilon=0.75)


@pytest.mark.quick
def test_rho_adds_and_mu_adds_in_quadrature():
    assert Guarantee(rho=0.5) + Guarantee(rho=0.25) == Guarantee(rho=0.75)
    assert (Guarantee(mu=3.0) + Guarantee(mu=4.0)).mu == pytest.approx(5.0)


def test_sensitivity_and_norm_belong_to_one_statistic():
    one = Guarantee(epsilon=0.5, sensitivity=2.0, norm="l1", neighbours="add-remove")
    assert one + one == Guarantee(epsilon=1.0, neighbours="add-remove")
    assert Guarantee.compose([one]) == Guarantee(epsilon=0.5, neighbours="add-remove")


def test_kinds_meet_in_rho():
    total = Guarantee(epsilon=0.4) + Guarantee(rho=0.1)
    assert total.kind == "rho"
    assert total.rho == pytest.approx(0.18)
    assert (Guarantee(mu=0.6) + Guarantee(rho=0.1)).rho == pytest.approx(0.28)
    assert (Guarantee(mu=0.6) + Guarantee(epsilon=0.4)).rho == pytest.approx(0.26)
    # the order does not matter, and one kind is never converted
    three = [Guarantee(epsilon=0.4), Guarantee(rho=0.1), Guarantee(mu=0.6)]
    assert Guarantee.compose(three).rho == pytest.approx(Guarantee.compose(three[::-1]).rho)
    assert Guarantee.compose([Guarantee(epsilon=0.4), Guarantee(epsilon=0.4)]).rho is None


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_parallel_is_the_largest(neighbours):
    parts = [Guarantee(epsilon=e, delta=d, neighbours=neighbours) for e, d in ((0.5, 1e-6), (0.2, 1e-5), (0.4, None))]
    expected = Guarantee(epsilon=0.5, delta=1e-5, neighbours=neighbours)
    assert Guarantee.parallel(parts, public_groups=True) == expected
    if neighbours == "add-remove":
        assert Guarantee.parallel(parts) == expected
    assert Guarantee.parallel([Guarantee(mu=1.0), Guarantee(rho=0.2)], public_groups=True) == Guarantee(rho=0.5)


REFUSED = {
    "relations": (
        lambda: Guarantee(epsilon=1.0, neighbours="add-remove") + Guarantee(epsilon=1.0, neighbours="replace-one"),
        r"'neighbours' must be the same neighbour relation in all; got \['add-remove', 'replace-one'\]",
    ),
    "relation unknown": (
        lambda: Guarantee(epsilon=1.0, neighbours="add-remove") + Guarantee(epsilon=1.0),
        "'neighbours' must be the same neighbour relation in all",
    ),
    "delta and rho": (
        lambda: Guarantee(epsilon=1.0, delta=1e-6) + Guarantee(rho=1.0),
        r"'guarantees' must not mix delta with rho or mu.*approximate\(delta\)",
    ),
    "delta and mu": (lambda: Guarantee(epsilon=1.0, delta=1e-6) + Guarantee(mu=1.0), "must not mix delta with"),
    "no budget": (lambda: Guarantee(sensitivity=1.0) + Guarantee(mu=1.0), "'guarantees' must each state a budget"),
    "nothing": (lambda: Guarantee.compose([]), "'guarantees' must be a non-empty list"),
    "not guarantees": (lambda: Guarantee.compose([0.5]), "'guarantees' must be a non-empty list of guarantees"),
    "too much delta": (
        lambda: Guarantee(epsilon=1.0, delta=0.6) + Guarantee(epsilon=1.0, delta=0.6),
        "'delta' must add up to less than 1; got 1.2",
    ),
    "replaced records change group": (
        lambda: Guarantee.parallel([Guarantee(epsilon=1.0, neighbours="replace-one")]),
        "'neighbours' must be 'add-remove', unless the groups are public; got 'replace-one'",
    ),
    "groups of an unknown relation": (
        lambda: Guarantee.parallel([Guarantee(epsilon=1.0)]),
        "'neighbours' must be 'add-remove', unless the groups are public; got None",
    ),
    "relation": (lambda: Guarantee(epsilon=1.0, neighbours="swap"), "Guarantee: 'neighbours' must be one of"),
    "concentrated": (
        lambda: Guarantee(epsilon=1.0, delta=1e-6).concentrated(),
        "'guarantee' must be rho, mu or pure epsilon",
    ),
    "approximate": (lambda: Guarantee(epsilon=1.0).approximate(1e-6), "'guarantee' must be rho or mu"),
    "approximate delta": (lambda: Guarantee(mu=1.0).approximate(1.0), "'delta' must be below 1; got 1.0"),
    "delta of a weak guarantee": (
        lambda: Guarantee(mu=0.1).approximate(0.5),
        "'delta' must be below that of epsilon = 0; got 0.5",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(call, message):
    with pytest.raises(nw.InputError, match=message):
        call()


def test_sums_with_other_things_are_type_errors():
    with pytest.raises(TypeError):
        Guarantee(epsilon=1.0) + 1.0


def test_files():
    guarantee = Guarantee(epsilon=1.0, delta=1e-6, sensitivity=2.0, norm="l1", neighbours="replace-one")
    assert Guarantee.from_dict(guarantee.to_dict(), "here") == guarantee
    assert Guarantee(mu=1.0).to_dict() == {"mu": 1.0}
    with pytest.raises(nw.InputError, match=r"here: 'neighbours' must be one of.*got 'swap'"):
        Guarantee.from_dict({"epsilon": 1.0, "neighbours": "swap"}, "here")


# Conversions against divergences --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_mu_to_epsilon_is_exact(mu, delta):
    found = Guarantee(mu=mu, neighbours="add-remove").approximate(delta)
    assert found.delta == delta
    assert found.neighbours == "add-remove"
    if delta > 1e-12:  # the plain difference of two probabilities has the digits
        assert gaussian_delta(mu, found.epsilon) == pytest.approx(delta, rel=1e-6)
    assert gaussian_delta(mu, 0.99 * found.epsilon) > delta


@pytest.mark.parametrize("rho", [0.001, 0.1, 1.0, 10.0])
def test_rho_to_epsilon_holds_for_gaussian_noise(rho):
    """Gaussian noise attains rho, and is (epsilon, delta)-DP with somewhat less."""
    mu = math.sqrt(2.0 * rho)
    for delta in (1e-3, 1e-6):
        assert gaussian_delta(mu, Guarantee(rho=rho).approximate(delta).epsilon) < delta
        assert Guarantee(mu=mu).approximate(delta).epsilon < Guarantee(rho=rho).approximate(delta).epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_pure_epsilon_to_rho_holds_for_randomised_response(epsilon):
    """The worst pair of pure epsilon-DP: one bit told truly with odds exp(epsilon)."""
    rho = Guarantee(epsilon=epsilon).concentrated().rho
    p = np.array([np.exp(epsilon), 1.0]) / (1.0 + np.exp(epsilon))
    for order in (1.001, 1.5, 2.0, 10.0, 100.0):
        divergence = np.log(np.sum(p**order * p[::-1] ** (1 - order))) / (order - 1)
        assert divergence <= order * rho


def test_composition_of_two_laplace_releases_is_exact(seed):
    """Two values from the same records: the joint loss is the sum, attained where both are at their worst."""
    parts = [nw.Laplace(epsilon=0.4, sensitivity=1.0), nw.Laplace(epsilon=0.9, sensitivity=1.0)]
    total = parts[0].guarantee + parts[1].guarantee
    losses = [part.log_prob(-3.0, 0.0) - part.log_prob(-3.0, 1.0) for part in parts]
    assert sum(losses) == pytest.approx(total.epsilon)


def test_composition_of_gaussian_releases_in_mu():
    """Two normal releases are one along the direction of the shift, with mu in quadrature."""
    parts = [nw.Gaussian(mu=0.6, sensitivity=1.0), nw.Gaussian(mu=0.8, sensitivity=2.0)]
    total = parts[0].guarantee + parts[1].guarantee
    assert total.mu == pytest.approx(1.0)
    joint = nw.Gaussian(scale=1.0)  # of sqrt(0.6^2 + 0.8^2) standard deviations
    pair = pair_of(joint, 0.0, 1.0, edges=[-12.0, 13.0])
    for epsilon in (0.1, 1.0, 3.0):
        assert hockey_stick(pair, epsilon) == pytest.approx(gaussian_delta(total.mu, epsilon), rel=1e-8)
    assert brentq(lambda e: gaussian_delta(1.0, e) - 1e-5, 1.0, 9.0) == pytest.approx(total.approximate(1e-5).epsilon)
