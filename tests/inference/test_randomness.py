"""No two uses share a stream of random numbers: purposes differ, and no run draws from one key twice."""

import ast
import itertools
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import same_draws
from sampler_table import SAMPLERS
from targets import count_model, count_release

import noisewise as nw
from noisewise.inference import randomness
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import STEPS, Purpose
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.likelihood.intervals import bootstrap
from noisewise.likelihood.monte_carlo.settling import ATTEMPTS
from noisewise.model.model import prior_generator

SOURCE = Path(nw.__file__).parent


def clashes(prefixes):
    """Pairs of which one begins with the other: keys of theirs might be the same."""
    pairs = itertools.combinations(sorted(prefixes), 2)
    return [(one, other) for one, other in pairs if other[: len(one)] == one]


def every_prefix():
    """What keys begin with: every purpose's numbers, those of its repetitions among them; E-steps have no end."""
    assert set(STEPS) == {Purpose.E_STEP, Purpose.MEASUREMENT}
    fixed = [purpose.value for purpose in Purpose if purpose not in STEPS]
    return [*fixed, *(Purpose.MEASUREMENT.step(attempt) for attempt in range(ATTEMPTS))]


def test_no_purpose_begins_with_another():
    assert len(Purpose) == len(Purpose.__members__)  # of two of one value the second would be an alias
    prefixes = every_prefix()
    assert clashes(prefixes) == []
    assert max(prefix[0] for prefix in prefixes) < Purpose.E_STEP.step(0)[0] < Purpose.E_STEP.step(1)[0]


def test_numbers_that_clash_are_noticed():
    """As the bootstrap's once did with those of starting points."""
    assert clashes([*every_prefix(), Purpose.STARTS.value])
    assert clashes([*every_prefix(), (*Purpose.STARTS.value, 3)])
    assert clashes([*every_prefix(), Purpose.MEASUREMENT.step(ATTEMPTS - 1)])


def test_repetitions_have_their_numbers_only_where_these_are_kept_free():
    assert Purpose.E_STEP.step(7) == (1007,)
    assert Purpose.MEASUREMENT.step(4) == (995,)
    with pytest.raises(ValueError, match="one number"):
        Purpose.HEIGHT.step(1)


def test_a_key_is_made_of_seed_purpose_and_index():
    key = randomness.key(3, Purpose.CONFLICT, 4, 5)
    assert (key.entropy, key.spawn_key) == (3, (7, 3, 4, 5))
    rng = np.random.default_rng(np.random.SeedSequence(3, spawn_key=(7, 3, 4, 5)))
    assert randomness.generator(3, Purpose.CONFLICT, 4, 5).integers(2**63) == rng.integers(2**63)


def state_of(rng):
    """Where a generator's sequence begins: two of one state are one stream."""
    state = rng.bit_generator.state["state"]
    return state["state"], state["inc"]


def states_of_purposes(seed):
    """Of every purpose's keys with an index of none, one and two numbers."""
    prefixes = [*every_prefix(), *(Purpose.E_STEP.step(number) for number in range(5))]
    indices = [index for length in range(3) for index in itertools.product((0, 1, 2, 3, 900, 901), repeat=length)]
    return [state_of(randomness.generator(seed, prefix, *index)) for prefix in prefixes for index in indices]


BLOCKS = [*range(9), 900, 901, 980, *range(990, 1005), 2**32 - 1]
"""Blocks of prior draws whose numbers are small, are a purpose's, or fill a word."""


@pytest.mark.parametrize("prior_seed", [0, 5, 2**32 - 1, 2**32 + 5, 2**64 + 1, 2**96 - 1])
def test_prior_draws_have_keys_of_no_purpose(prior_seed):
    """[seed, block] lies within a seed sequence's pool of four words; a purpose's numbers come after the pool."""
    states = states_of_purposes(prior_seed)
    assert len(set(states)) == len(states)
    prior = {state_of(prior_generator(prior_seed, block)) for block in BLOCKS}
    assert len(prior) == len(set(BLOCKS))
    assert prior.isdisjoint(states)


def test_a_seed_without_a_purpose_has_the_key_of_prior_draws():
    """Negative control: zeros that fill the pool are as a block's number would be, so every key needs a purpose."""
    assert state_of(np.random.default_rng(5)) == state_of(prior_generator(5, 0))


def test_seeds_that_fill_the_pool_share_a_key_only_where_a_purpose_has_no_index():
    """The block of prior draws is the fifth word then, as is a purpose's first number."""
    shared = state_of(prior_generator(2**96, Purpose.STARTS.value[0]))
    assert shared == state_of(randomness.generator(2**96, Purpose.STARTS))
    assert shared != state_of(randomness.generator(2**96, Purpose.STARTS, 0))


def test_equal_weights_are_drawn_by_a_key_of_their_own(used, seed):
    model, release = count_model(), count_release()
    posterior = nw.sample(model, release, nw.Importance(), draws=100, seed=seed, on_failure="return", progress=False)
    used.clear()
    posterior.to_arviz()
    assert list(used) == [(seed, Purpose.EQUAL_WEIGHTS.value)]


MAKERS = ("SeedSequence", "default_rng", "RandomState", "PCG64", "Philox")


def makers(tree):
    """Calls in a module that make a generator or a key, apart from a fixed one: (name, line)."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        fixed = len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if name in MAKERS and not fixed:
            yield name


EXCEPTIONS = {
    "inference/randomness.py": 2,  # the one place
    "inference/blocks.py": 2,  # a generator of a key made there
    "model/simulator.py": 2,  # twice the same, to see whether a simulator keeps to it
    "model/model.py": 1,  # of prior draws, which know nothing of algorithms
    "paper/lalonde.py": 1,  # of a curator
}


def test_keys_are_made_in_one_place():
    found = Counter()
    for path in SOURCE.rglob("*.py"):
        if any(maker in (text := path.read_text()) for maker in MAKERS):  # what is not there need not be parsed
            found[path.relative_to(SOURCE).as_posix()] += len(list(makers(ast.parse(text))))
    assert +found == Counter(EXCEPTIONS)


def test_a_key_made_elsewhere_is_noticed():
    assert list(makers(ast.parse("rng = np.random.default_rng(np.random.SeedSequence(1, spawn_key=(900, 2)))")))
    assert list(makers(ast.parse("rng = default_rng(seed)")))
    assert not list(makers(ast.parse("rng = np.random.default_rng(0)")))


@pytest.fixture
def used(monkeypatch):
    """How often every key is asked for."""
    counts, lock, made = Counter(), threading.Lock(), randomness.key

    def recorded(seed, purpose, *index):
        key = made(seed, purpose, *index)
        with lock:
            counts[key.entropy, key.spawn_key] += 1
        return key

    monkeypatch.setattr(randomness, "key", recorded)
    return counts


def twice(counts):
    return [key for key, count in counts.items() if count > 1]


KEYED = {name: row.small for name, row in SAMPLERS.items() if row.small is not None}
KEYED["Augmentation in several groups"] = nw.Augmentation(chains=16, warmup=8)
BY_CHAINS = (nw.MCMC, nw.SMC, nw.Augmentation, nw.NUTS)
"""Keys of these are by chain, whatever the model; the others' also by the part of the model that is proposed."""
ALIKE = ("Rejection joint", "Importance of several", "Importance collapsed", "ImportanceRejection", "Augmentation")
"""Of these every key is one of another sampler here, too."""


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.long] * (one in ALIKE)) for one in KEYED])
def test_no_sampler_uses_a_key_twice(name, used, seed):
    sampler, parts = KEYED[name], same_draws.hierarchy()
    alone = isinstance(sampler, BY_CHAINS) or sampler.unfit(Problem(*parts)) is not None
    model, release = (count_model(), count_release()) if alone else parts
    nw.sample(model, release, sampler, draws=200, seed=seed, on_failure="return", progress=False)
    assert used
    assert twice(used) == []


@pytest.mark.parametrize("e_step", E_STEPS)
def test_no_e_step_uses_a_key_twice(e_step, used, seed):
    """From one start: fits from several compare them on the same random numbers."""
    model, release = same_draws.clamped_mean() if e_step == "augmented" else (count_model(), count_release())
    start = {"mu": 0.5} if e_step == "augmented" else {"theta": 30.0}
    estimator = nw.MCEM(e_step=e_step, final=1_000, max_iterations=15)
    nw.fit(model, release, estimator, start=start, seed=seed, on_failure="return", progress=False)
    numbers = {key[0] for _, key in used}
    assert numbers >= {999, 1000}
    assert max(numbers) > 1000  # several steps
    assert twice(used) == []


def test_no_refit_uses_a_key_twice(used, seed):
    model, release = count_model(), count_release()
    fit = nw.fit(model, release, nw.EM(), start={"theta": 30.0}, progress=False)
    bootstrap(model, release, fit, draws=3, seed=seed, estimator=nw.MCEM(final=1_000))
    assert {key[0] for _, key in used} >= {901, 999, 1000}
    assert twice(used) == []


def test_a_key_used_twice_is_noticed(used, seed, monkeypatch):
    """Streams with blocks that all have one number."""
    model, release = count_model(), count_release()
    recorded = randomness.key
    monkeypatch.setattr(randomness, "key", lambda seed, purpose, *index: recorded(seed, purpose, *index[:1]))
    nw.sample(model, release, nw.Rejection(), draws=50_000, seed=seed, progress=False)
    assert twice(used)
