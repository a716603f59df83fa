"""Tasks of several blocks: the draws of one seed, however many blocks a worker evaluates at a time."""

import hashlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees
from mechanism_case import all_cases
from scipy import stats
from targets import brief_rows, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.engine import Stopped, Threads
from noisewise.errors import NoisewiseWarning
from noisewise.inference import randomness, streams
from noisewise.inference import stream as stream_module
from noisewise.inference.blocks import by_block, run_blocks
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.stream import Stream
from noisewise.model.law import Law, constant_law
from noisewise.model.variates import VARIATES
from noisewise.model.wrappers import peel
from noisewise.numerics import SideBySide
from noisewise.samplers import rejection

ROWS, BLOCKS = 700, 3
"""More than NumPy's unrolled loops take, and not a multiple of them."""
T = np.linspace(0.2, 0.9, ROWS * BLOCKS)


def in_two(t):
    return jnp.stack([t, 1.0 - t])


LAWS = {
    "Normal": lambda t: dist.Normal(t, 1.0 + t),
    "LogNormal": lambda t: dist.LogNormal(t, 1.0),
    "HalfNormal": lambda t: dist.HalfNormal(t),
    "StudentT": lambda t: dist.StudentT(3.0 + t, t, 1.0),
    "Cauchy": lambda t: dist.Cauchy(t, 1.0),
    "HalfCauchy": lambda t: dist.HalfCauchy(t),
    "Laplace": lambda t: dist.Laplace(t, 1.0),
    "Logistic": lambda t: dist.Logistic(t, 1.0),
    "Gumbel": lambda t: dist.Gumbel(t, 1.0),
    "Exponential": lambda t: dist.Exponential(t),
    "Gamma": lambda t: dist.Gamma(t, 2.0),
    "InverseGamma": lambda t: dist.InverseGamma(3.0 + t, 2.0),
    "Chi2": lambda t: dist.Chi2(3.0 + t),
    "Beta": lambda t: dist.Beta(t, 2.0),
    "Uniform": lambda t: dist.Uniform(-t, t),
    "Weibull": lambda t: dist.Weibull(t, 1.5),
    "Pareto": lambda t: dist.Pareto(t, 3.0),
    "TwoSidedTruncatedDistribution": lambda t: dist.TruncatedNormal(t, 1.0, low=0.0, high=2.0),
    "LeftTruncatedDistribution": lambda t: dist.TruncatedNormal(t, 1.0, low=0.0),
    "RightTruncatedDistribution": lambda t: dist.TruncatedNormal(t, 1.0, high=0.0),
    "Dirichlet": lambda t: dist.Dirichlet(in_two(t)),
    "MultivariateNormal": lambda t: dist.MultivariateNormal(in_two(t), jnp.eye(2) * t),
    "BernoulliProbs": lambda t: dist.Bernoulli(probs=t),
    "BernoulliLogits": lambda t: dist.Bernoulli(logits=t),
    "BinomialProbs": lambda t: dist.Binomial(20, probs=t),
    "BinomialLogits": lambda t: dist.Binomial(20, logits=t),
    "BetaBinomial": lambda t: dist.BetaBinomial(t, 2.0, 15),
    "MultinomialProbs": lambda t: dist.Multinomial(12, probs=in_two(t)),
    "MultinomialLogits": lambda t: dist.Multinomial(12, logits=in_two(t)),
    "CategoricalProbs": lambda t: dist.Categorical(probs=in_two(t)),
    "CategoricalLogits": lambda t: dist.Categorical(logits=in_two(t)),
    "Poisson": lambda t: dist.Poisson(40.0 * t),
    "GammaPoisson": lambda t: dist.GammaPoisson(t, 0.5),
    "NegativeBinomial2": lambda t: dist.NegativeBinomial2(6.0 * t, 2.0),
    "NegativeBinomialProbs": lambda t: dist.NegativeBinomialProbs(4.0, t),
    "NegativeBinomialLogits": lambda t: dist.NegativeBinomialLogits(4.0, -t),
    "GeometricProbs": lambda t: dist.Geometric(probs=t),
    "GeometricLogits": lambda t: dist.Geometric(logits=t),
    "ZeroInflatedPoisson": lambda t: dist.ZeroInflatedPoisson(t, 4.0),
    "Delta": lambda t: dist.Delta(t),
    "several entries": lambda t: dist.Poisson(t * jnp.arange(1.0, 4.0)),
    "compiled": lambda t: dist.Normal(jnp.exp(t), jnp.tanh(t)),
    "transformed": lambda t: dist.TransformedDistribution(
        dist.Normal(0.0, 1.0), [dist.transforms.AffineTransform(t, 2.0), dist.transforms.ExpTransform()]
    ),
    "without an entry": lambda t: dist.VonMises(t, 3.0),
}


PATHS = {f"{path}-{name}": (path, name) for path in ("by row", "constant") for name in LAWS}
CONSTANT = ("Normal", "Gamma", "Dirichlet", "Poisson", "MultinomialProbs", "transformed", "without an entry")
BRIEFLY = [row for row, (path, name) in PATHS.items() if path == "by row" or name in CONSTANT]
"""Parameters that do not change are those of one row, given to the same variates."""


def generators(seed, count=BLOCKS):
    return [np.random.default_rng([seed, block]) for block in range(count)]


def block_by_block(law, values, seed):
    parts = [slice(block * ROWS, (block + 1) * ROWS) for block in range(BLOCKS)]
    cut = [{name: column[part] for name, column in values.items()} for part in parts]
    return np.concatenate([law.draw(rng, given, ROWS) for rng, given in zip(generators(seed), cut, strict=True)])


def same_bits(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("path", "name"), brief_rows(PATHS, BRIEFLY))
def test_every_law_draws_the_same_bits_side_by_side(name, path, seed):
    function = LAWS[name]
    if path == "by row":
        law = Law("law", function, ("t",), {"t": jax.ShapeDtypeStruct((), np.float64)})
        values = {"t": T}
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisewiseWarning)  # constants of 32 bits
            law, values = Law("law", constant_law(function(0.5), "law"), (), {}), {}
    together = law.draw(SideBySide(generators(seed), ROWS), values, ROWS * BLOCKS)
    assert same_bits(together, block_by_block(law, values, seed))


@pytest.mark.quick
def test_every_law_of_the_table_is_among_them():
    drawn = {type(peel(function(0.5))[0]).__name__ for function in LAWS.values()}
    assert drawn >= set(VARIATES)


def test_generators_that_blocks_share_would_be_caught(seed):
    """Negative control: one generator for all blocks, and generators in another order."""
    law = Law("law", LAWS["Gamma"], ("t",), {"t": jax.ShapeDtypeStruct((), np.float64)})
    right = block_by_block(law, {"t": T}, seed)
    one = generators(seed)[0]
    for wrong in ([one] * BLOCKS, generators(seed)[::-1]):
        assert not same_bits(law.draw(SideBySide(wrong, ROWS), {"t": T}, ROWS * BLOCKS), right)


def test_what_generators_side_by_side_do_not_have_is_an_error(seed):
    rng = SideBySide(generators(seed), ROWS)
    with pytest.raises(AttributeError):
        rng.permutation(ROWS * BLOCKS)
    with pytest.raises(ValueError, match="cannot fill"):
        rng.random(ROWS)


@pytest.mark.parametrize(
    "case", [case for case in all_cases() if case.mechanism.event_dim == 0], ids=lambda case: case.name
)
def test_every_mechanism_weighs_a_row_without_the_others(case, seed):
    """The log density of a row has the same bits among others: blocks may be weighed together."""
    rng = np.random.default_rng(seed)
    rows = np.asarray(case.search(rng, 300))[: 3 * (300 // 3)]
    released = np.asarray(case.sample(case.mechanism, rng, 1))[0]
    inputs = {name: np.broadcast_to(value, (len(rows), *np.shape(value))) for name, value in case.inputs.items()}

    def weighed(part):
        some = {name: value[part] for name, value in inputs.items()}
        with np.errstate(all="ignore"):
            return np.asarray(case.mechanism.log_prob(released, rows[part], **some))

    third = len(rows) // 3
    parts = [slice(start, start + third) for start in (0, third, 2 * third)]
    assert same_bits(weighed(slice(0, 3 * third)), np.concatenate([weighed(part) for part in parts]))


# Runs --------------------------------------------------------------------------------------------------------------


def several():
    """Laws of several entries, compiled ones and transforms, and a statistic of a statistic."""
    model = nw.Model(
        {"spread": dist.HalfNormal(1.0), "rate": lambda spread: dist.LogNormal(1.0, spread).expand([4])},
        {
            "counts": lambda rate: dist.Poisson(rate),
            "level": lambda rate: dist.Normal(jnp.exp(-rate[0]), 1.0),
            "echo": lambda level: dist.StudentT(4.0, level, 1.0),
        },
    )
    counts = nw.DiscreteLaplace(scale=1.5).released(np.array([2, 5, -1, 4]))
    level, echo = nw.Gaussian(scale=1.0).released(0.5), nw.Laplace(scale=1.0).released(0.1)
    return model, nw.Release(counts=counts, level=level, echo=echo)


PROBLEMS = {
    "count": (lambda: (count_model(), count_release()), 6_000),
    "Lalonde": (lambda: (lalonde_model(), lalonde_release((7.9, 3.1, 66.0, 27.5))), 2_000),
    "several": (several, 300),
}


def digest(found):
    content = hashlib.sha256()
    for name in sorted(found.draws):
        content.update(np.ascontiguousarray(found[name]).tobytes())
    return content.hexdigest(), found.proposals, found.log_evidence


@pytest.mark.parametrize(
    ("name", "plan"), [("count", "joint"), ("count", "divide"), ("Lalonde", "divide"), ("several", "divide")]
)
def test_one_seed_gives_one_result_however_many_blocks_a_task_has(name, plan, seed, monkeypatch):
    make, draws = PROBLEMS[name]
    problem, found, sizes, largest = make(), set(), [], {}

    def watched(work, key, inputs, rows, blocks, together, poll):
        sizes.append(blocks)
        return run_blocks(work, key, inputs, rows, blocks, together, poll)

    monkeypatch.setattr(stream_module, "run_blocks", watched)
    for numbers, handful, workers in ((2**6, 1, 1), (2**18, 1, 1), (2**16, 3, 2)):
        small_blocks(monkeypatch, numbers)
        monkeypatch.setattr(Threads, "handful", handful)
        sizes.clear()
        found.add(digest(nw.sample(*problem, nw.Rejection(plan=plan), draws=draws, seed=seed, engine=Threads(workers))))
        largest[numbers] = max(sizes)
    assert largest[2**6] == 1
    assert max(largest.values()) > 2  # how many, and when, is the scheduler's choice
    assert len(found) == 1


def small_blocks(monkeypatch, numbers):
    for setting, value in {"LEAF_ROWS": 2**10, "MERGE_ROWS": 2**7, "CELLS": 2**13, "TOGETHER": numbers}.items():
        monkeypatch.setattr(rejection, setting, value)


def test_a_checkpoint_goes_on_with_other_numbers_of_blocks_a_task(seed, monkeypatch, tmp_path):
    common = {"sampler": nw.Rejection(), "seed": seed, "engine": Threads(2)}
    model, release = lalonde_model(), lalonde_release((7.9, 3.1, 66.0, 27.5))
    small_blocks(monkeypatch, 2**6)
    plain = nw.sample(model, release, draws=1_500, **common)
    files = []
    for numbers, draws in ((2**15, 700), (2**6, 1_100), (2**14, 1_500)):
        small_blocks(monkeypatch, numbers)
        found = nw.sample(model, release, draws=draws, **common, checkpoint=tmp_path / "run")
        files.append((tmp_path / "run").stat().st_size)
        assert all(np.array_equal(found[name], plain[name][:draws]) for name in plain.draws)
    assert files == sorted(files)


# Blocks that grow ---------------------------------------------------------------------------------------------------


def growing(monkeypatch, settled, numbers=2**14):
    small_blocks(monkeypatch, numbers)
    monkeypatch.setattr(streams, "SETTLED", settled)


def test_larger_blocks_come_by_their_number_alone(seed, monkeypatch):
    """Whatever the threads, the tasks and the draws asked for; and the first blocks' draws are those without growth."""
    model, release = lalonde_model(), lalonde_release((7.9, 3.1, 66.0, 27.5))
    sizes = []

    def watched(work, key, inputs, rows, blocks, together, poll):
        sizes.append((key.spawn_key[-2:], rows, blocks))
        return run_blocks(work, key, inputs, rows, blocks, together, poll)

    monkeypatch.setattr(stream_module, "run_blocks", watched)
    runs = []
    for settled, numbers, workers, draws in ((5, 2**6, 1, 2_000), (5, 2**16, 3, 2_000), (5, 2**14, 2, 900)):
        growing(monkeypatch, settled, numbers)
        runs.append(nw.sample(model, release, nw.Rejection(), draws=draws, seed=seed, engine=Threads(workers)))
    names = list(runs[0].draws)
    for run in runs[1:]:
        assert all(np.array_equal(run[name], runs[0][name][: len(run[name])]) for name in names)
    assert runs[0].proposals == runs[1].proposals
    of_prior = {key[0] for key, rows, _ in sizes if rows > 2**10}
    for (stream, first), rows, blocks in sizes:
        if stream in of_prior:
            assert rows == (2**10 if first < 5 else 2**12)
            assert (first + blocks <= 5) if first < 5 else True
        else:
            assert rows <= 2**10
    growing(monkeypatch, streams.NEVER)
    plain = nw.sample(model, release, nw.Rejection(), draws=2_000, seed=seed, engine=Threads(2))
    same = (plain[names[0]] == runs[0][names[0]]).reshape(2_000, -1).all(axis=1)
    assert same[:10].all()
    assert not same[-1_000:].all()


def test_draws_and_evidence_of_larger_blocks_are_exact(seed, monkeypatch):
    """Negative control: proposals counted as if no block had grown give another evidence."""
    growing(monkeypatch, 4)
    posterior = nw.sample(
        count_model(), count_release(), nw.Rejection(plan="joint"), draws=20_000, seed=seed, engine=Threads(2)
    )
    assert posterior.proposals > 16 * 2**10
    s = np.arange(400)
    law = stats.nbinom(25.0, 0.5).pmf(s)
    weights = law * np.exp(-np.abs(37.4 - s) / 5.0) / 10.0
    assert agrees(posterior["count"], weights @ s / weights.sum())
    z = (posterior.log_evidence - np.log(weights.sum())) / posterior.log_evidence_se
    assert abs(z) < LIMIT
    wrong = posterior.log_evidence + np.log(posterior.proposals / (4 * 2**10 + (posterior.proposals - 4 * 2**10) / 4))
    assert abs(wrong - np.log(weights.sum())) / posterior.log_evidence_se > LIMIT


def test_a_checkpoint_goes_on_with_blocks_of_its_own_sizes(seed, monkeypatch, tmp_path):
    """One of a version whose blocks were all alike is not given larger ones."""
    common = {"sampler": nw.Rejection(), "seed": seed, "engine": Threads(2)}
    model, release = lalonde_model(), lalonde_release((7.9, 3.1, 66.0, 27.5))
    for settled, draws in ((5, (900, 2_000)), (streams.NEVER, (900, 2_000))):
        growing(monkeypatch, settled)
        plain = nw.sample(model, release, draws=draws[1], **common)
        path = tmp_path / f"{settled}"
        if settled == streams.NEVER:  # as that version wrote it
            monkeypatch.setattr(streams.StreamsRun, "describe", described_before)
            monkeypatch.setattr(streams.StreamsRun, "_settle", never_settled)
        nw.sample(model, release, draws=draws[0], **common, checkpoint=path)
        monkeypatch.undo()
        growing(monkeypatch, 5)
        found = nw.sample(model, release, draws=draws[1], **common, checkpoint=path)
        assert all(np.array_equal(found[name], plain[name]) for name in plain.draws)
        assert found.proposals == plain.proposals


def described_before(run):
    run.log.put({"streams": {}, "roots": [], "draws": run.draws}, "streams")


def never_settled(run):
    for stream in run.streams:
        stream.settled = streams.NEVER


@pytest.mark.parametrize("wrong", [0, -5, 63.5, "64"])
def test_a_checkpoint_that_says_nonsense_of_its_sizes_is_refused(wrong, seed, monkeypatch, tmp_path):
    common = {"sampler": nw.Rejection(), "seed": seed, "engine": Threads(1), "checkpoint": tmp_path / "run"}
    with monkeypatch.context() as changed:
        changed.setattr(
            streams.StreamsRun,
            "describe",
            lambda run: run.log.put({"streams": {}, "roots": [], "draws": 1, "settled": wrong}, "streams"),
        )
        nw.sample(count_model(), count_release(), draws=30, **common)
    with pytest.raises(nw.InputError, match="its blocks are larger from"):
        nw.sample(count_model(), count_release(), draws=60, **common)


@pytest.mark.parametrize(("entries", "grows"), [(1, True), (1_000, True), (20_000, False)])
def test_only_light_rows_come_in_larger_blocks(entries, grows):
    model = nw.Model({"mu": dist.Normal(0.0, 1.0).expand([entries])}, {"s": lambda mu: dist.Normal(mu.sum(), 1.0)})
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=1.0).released(0.3)))
    (stream,) = rejection.plan_streams(problem, joint=True)
    assert (stream.growth > 1) == grows
    assert not grows or stream.rows * stream.growth * (entries + 1) <= rejection.GROWTH * rejection.CELLS


def test_a_block_of_another_size_is_refused(seed, monkeypatch, tmp_path):
    """Where the checkpoint has lost what says so, it is not taken for a block of this size."""
    common = {"sampler": nw.Rejection(), "seed": seed, "engine": Threads(1)}
    growing(monkeypatch, 2)
    nw.sample(count_model(), count_release(), draws=3_000, **common, checkpoint=tmp_path / "run")
    monkeypatch.setattr(streams.StreamsRun, "_settle", never_settled)
    with pytest.raises(nw.InputError, match="positions that fit"):
        nw.sample(count_model(), count_release(), draws=4_000, **common, checkpoint=tmp_path / "run")


# Tasks --------------------------------------------------------------------------------------------------------------


def key(seed, block):
    return randomness.key(seed, Purpose.PROPOSALS, 5, block)


def kept(rng, inputs, rows, poll):
    """Half of the rows, each with what it was given and what it drew."""
    drawn = rng.random(rows)
    keep = np.flatnonzero(drawn < 0.5)
    return {"drawn": drawn[keep], "given": inputs["given"][keep]}, keep


def pieces(blocks):
    given = np.arange(blocks * ROWS)
    return [[{"given": given[:50]}, {"given": given[50:]}]]


@pytest.mark.parametrize(("blocks", "together"), [(1, 1), (3, 3), (5, 2), (5, 1), (4, 2)])
def test_a_task_is_its_blocks_one_by_one(blocks, together, seed):
    found = run_blocks(kept, key(seed, 7), pieces(blocks), ROWS, blocks, together, lambda: None)
    parted = by_block(found)
    assert len(parted) == blocks
    for block, (columns, positions) in enumerate(parted):
        given = {"given": np.arange(block * ROWS, (block + 1) * ROWS)}
        expected, places = kept(np.random.default_rng(key(seed, 7 + block)), given, ROWS, None)
        assert positions.dtype == np.int32
        assert np.array_equal(positions, places)
        assert all(same_bits(columns[name], expected[name]) for name in expected)


def faulty(rng, inputs, rows, poll):
    bad = np.flatnonzero(inputs["given"] == 3 * ROWS + 5)
    if bad.size:
        raise ValueError(f"row {bad[0]} of {rows}")
    return kept(rng, inputs, rows, poll)


def test_a_failure_names_its_block(seed):
    """Blocks 10 and 11 are met first; the row at fault is the sixth of block 13, which is evaluated with block 12."""
    with pytest.raises(ValueError, match=f"row 5 of {ROWS}") as caught:
        run_blocks(faulty, key(seed, 10), pieces(4), ROWS, 4, 2, lambda: None)
    assert "block (0, 5, 13)" in "".join(caught.value.__notes__)


def test_a_task_that_is_no_longer_wanted_stops_between_its_blocks(seed):
    calls = []

    def poll():
        calls.append(None)
        if len(calls) > 2:
            raise Stopped

    with pytest.raises(Stopped):
        run_blocks(kept, key(seed, 0), pieces(8), ROWS, 8, 8, poll)
    assert len(calls) == 3


# How many blocks a task has ------------------------------------------------------------------------------


def half(rng, inputs, rows, poll):
    """Every other row survives."""
    places = np.arange(0, rows, 2, dtype=np.int32)
    return {"x": rng.random(rows)[places]}, places


def source_of(draws, together=16, rows=1_024):
    """A run of one stream of light blocks, with four tasks of the largest kind at a time."""
    stream = Stream(0, rows, half, "'x'", together=together)
    budget, progress = streams.Budget(), Progress(False, "")
    return stream, streams.StreamsRun([stream], draws, 1, Purpose.PROPOSALS, budget, progress)


def test_light_blocks_are_not_begun_where_those_under_way_suffice():
    """Before the share of survivors is known, they are; and so are heavy ones, of simulators say."""
    stream, source = source_of(6_000)
    first = [source.next_task(streams.MANY) for _ in range(40)]
    assert None not in first
    stream, source = source_of(6_000)
    while stream.accepted < streams.KNOWN:
        task = source.next_task(streams.MANY)
        task.done(task.work(lambda: None))
    begun = list(iter(lambda: source.next_task(streams.MANY), None))
    wanted = (6_000 - stream.accepted) / (0.5 * stream.rows)
    assert begun
    assert wanted <= stream.under_way < wanted + 1
    _, simulated = source_of(6_000, together=1)
    assert None not in [simulated.next_task(streams.MANY) for _ in range(40)]


def test_tasks_of_a_long_run_are_large_from_the_first_on_and_of_a_short_one_small():
    """A few hundred light blocks in single tasks would wait for the interpreter more than they compute."""
    stream, source = source_of(40_000)
    source.next_task(streams.MANY)
    assert stream.launched >= 0.25 * stream.together
    stream, source = source_of(500)
    source.next_task(streams.MANY)
    assert stream.launched == 1
