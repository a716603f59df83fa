"""The mechanism contract over the whole catalogue: density, sampler, supremum, JAX, files."""

import jax
import jsonschema
import numpy as np
import pytest
from exactness import agrees
from mechanism_case import all_cases

import noisewise as nw
from noisewise.mechanisms import CATALOGUE
from noisewise.numerics import double
from noisewise.release.schema import schema

CASES = all_cases()
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def released_values(case, seed, size=50):
    """Some values the mechanism can release: simulated ones and, where few, all of them."""
    drawn = np.asarray(case.sample(case.mechanism, np.random.default_rng(seed), size))
    return drawn[:20]


def summed(values, rows):
    return np.asarray(values).reshape(rows, -1).sum(axis=1)


@pytest.mark.quick
def test_every_mechanism_has_a_case():
    inside = {name for name, kind in CATALOGUE.items() if kind.__module__.startswith("noisewise.")}
    assert {type(case.mechanism).__name__ for case in CASES} == inside
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.quick
@every_case
def test_mass_is_one(case, seed):
    if case.nearby is None:
        assert case.mass() == pytest.approx(1.0, abs=1e-9)
    elif case.mechanism.measure == "density":
        ratios = case.mass_ratios(np.random.default_rng(seed))
        assert agrees(ratios, 1.0)
        assert not agrees(1.05 * ratios, 1.0)  # negative control: a normaliser 5% off


@pytest.mark.quick
@every_case
def test_sampler_follows_the_density(case, seed):
    assert case.follows(case.mechanism, np.random.default_rng(seed))


FIRST = list({type(case.mechanism): case for case in reversed(CASES)}.values())
"""One case of every mechanism."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.long] * (case not in FIRST)) for case in CASES]
)
def test_negative_control_a_wrong_sampler_is_caught(case, seed):
    assert not case.follows(case.wrong, np.random.default_rng(seed))


@pytest.mark.quick
@every_case
def test_supremum_bounds_the_density(case, seed):
    rng = np.random.default_rng(seed)
    rows = case.search(rng, 2_000)
    inputs = {name: np.broadcast_to(value, (len(rows), *np.shape(value))) for name, value in case.inputs.items()}
    for released in released_values(case, seed):
        sup = np.sum(case.mechanism.log_sup(released))
        assert np.isfinite(sup)
        with np.errstate(over="ignore"):
            found = summed(case.mechanism.log_prob(released, rows, **inputs), len(rows))
        assert not np.isnan(found).any()
        assert found.max() <= sup + 1e-9


@every_case
def test_supremum_is_attained_or_approached_as_claimed(case, seed):
    if case.mechanism.supremum == "bound":
        assert case.attains is None
        return
    tolerance = {"attained": 1e-9, "approached": 1e-5}[case.mechanism.supremum]
    for released in released_values(case, seed):
        inputs = case.inputs if case.at_supremum is None else case.at_supremum
        best = case.mechanism.log_prob(released, np.asarray(case.attains(released)), **inputs)
        assert np.sum(best) == pytest.approx(np.sum(case.mechanism.log_sup(released)), abs=tolerance)


both = jax.jit(lambda m, r, c, i: (m.log_prob(r, c, **i), m.log_sup(r)))
NESTED = {"affine-clipped", "clipped-rounded", "rounded-clipped", "randomised-response-counts-channel"}
NESTED |= {"clamped-rounded", "clipped-integers", "rounded-integers-with-ties"}
"""Cases whose parts are compiled in other cases too, or in tests of their own."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.long] * (case.name in NESTED)) for case in CASES]
)
def test_numpy_and_jax_agree(case, seed):
    rows = case.search(np.random.default_rng(seed), 64)
    released = released_values(case, seed)[0]
    inputs = {name: np.broadcast_to(value, (len(rows), *np.shape(value))) for name, value in case.inputs.items()}
    with np.errstate(over="ignore"):
        plain = np.asarray(case.mechanism.log_prob(released, rows, **inputs))
    with double():
        traced, sup = both(case.mechanism, released, rows, inputs)
        assert plain.shape == traced.shape
        np.testing.assert_allclose(np.asarray(traced), plain, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(np.asarray(sup), case.mechanism.log_sup(released), rtol=1e-10, atol=1e-10)


@every_case
def test_rows_are_treated_one_by_one(case, seed):
    """A leading axis of confidential values gives what each gives alone."""
    rows = case.search(np.random.default_rng(seed), 12)
    released = released_values(case, seed)[0]
    inputs = {name: np.broadcast_to(value, (len(rows), *np.shape(value))) for name, value in case.inputs.items()}
    with np.errstate(over="ignore"):
        together = np.asarray(case.mechanism.log_prob(released, rows, **inputs))
        for index, row in enumerate(rows):
            alone = case.mechanism.log_prob(released, row, **{name: value[index] for name, value in inputs.items()})
            np.testing.assert_allclose(together[index], alone, rtol=1e-12, atol=1e-12)


@every_case
def test_draws_fit_their_own_release(case, seed):
    released = released_values(case, seed)[0]
    item = case.mechanism.released(released)
    assert case.mechanism.misfit(item.shape, np.shape(case.confidential)) is None


@pytest.mark.quick
@every_case
def test_files_give_it_back(case, seed):
    release = nw.Release(x=case.mechanism.released(released_values(case, seed)[0]))
    content = release.to_dict()
    jsonschema.Draft202012Validator(schema()).validate(content)
    again = nw.Release.from_dict(content)
    assert again == release
    assert again["x"].mechanism == case.mechanism
    assert again["x"].mechanism.guarantee == case.mechanism.guarantee
    assert repr(case.mechanism).startswith(type(case.mechanism).__name__)


@every_case
def test_frozen_and_hashable(case):
    with pytest.raises(AttributeError):
        case.mechanism.extra = 1
    assert isinstance(hash(case.mechanism), int)
    assert case.mechanism != case.wrong
