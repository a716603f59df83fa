"""Streams of blocks: one result for any scheduling, prefixes, budgets, and an unbiased evidence."""

import heapq
import itertools
import math
import threading
import time
from contextlib import nullcontext
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import LIMIT, agrees, errors_agree
from targets import briefly, count_model, count_release, lalonde_model, lalonde_release

import noisewise as nw
from noisewise.engine import Engine, Threads
from noisewise.inference import stream as stream_module
from noisewise.inference import streams
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose
from noisewise.inference.stream import Stream
from noisewise.inference.streams import Budget, StreamsRun, run
from noisewise.samplers import rejection
from noisewise.samplers.rejection import plan_streams, prior_groups

RELEASED = (7.9, 3.1, 66.0, 27.5)


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a.draws)


def chunked_total():
    return nw.Model(
        prior={"mu": dist.Normal(0.0, 1.0)},
        statistics={"t": nw.Total({"x": lambda mu: dist.Normal(mu, 1.0)}, lambda x: x, n=30)},
    )


def mixture_model():
    """A law without a NumPy sampler."""

    def law(m):
        parts = dist.Normal(jnp.stack([m, m + 4.0]), 1.0)
        return dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])), parts)

    return nw.Model(prior={"m": dist.Normal(0.0, 1.0)}, statistics={"s": law})


# One seed, one result ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["divide", "joint"])
def test_threads_do_not_change_the_draws(plan, seed):
    problems = [(count_model(), count_release(), 20_000)]
    if plan == "divide":
        problems.append((lalonde_model(), lalonde_release(RELEASED), 6_000))
    for model, release, draws in problems:
        runs = [
            nw.sample(model, release, nw.Rejection(plan=plan), draws=draws, seed=seed, engine=Threads(workers))
            for workers in (1, 3)
        ]
        for other in runs[1:]:
            assert same(runs[0], other)
            assert other.proposals == runs[0].proposals
            assert other.log_evidence == runs[0].log_evidence


@pytest.mark.quick
def test_fewer_draws_are_a_prefix_of_more(seed):
    model, release = lalonde_model(), lalonde_release(RELEASED)
    few, many = (nw.sample(model, release, nw.Rejection(), draws=draws, seed=seed) for draws in (1_000, 30_000))
    assert all(np.array_equal(few[name], many[name][:1_000]) for name in few.draws)


PREFIXES = {
    "rejection": nw.Rejection(),
    "importance": nw.Importance(),
    "adapted": nw.Importance(proposal="adapted"),
    "collapsed": nw.Importance(collapse=True),
    "importance-rejection": nw.ImportanceRejection(),
    "rejection control": nw.RejectionControl(),
}
"""Samplers of which docs/samplers.md says that fewer draws are the first of more."""


@pytest.mark.parametrize("sampler", PREFIXES)
def test_fewer_draws_are_the_first_of_more(sampler, seed):
    """Not a multiple of a block, and more than one."""
    model, common = count_model(), {"sampler": PREFIXES[sampler], "seed": seed, "on_failure": "return"}
    few, many = (nw.sample(model, count_release(), draws=draws, **common) for draws in (1_000, 9_001))
    assert all(np.array_equal(few[name], many[name][:1_000]) for name in few.draws)
    if few.log_weights is not None:
        assert np.array_equal(few.log_weights, many.log_weights[:1_000])


@pytest.mark.long  # test_nuts.py has the same, on several threads
def test_fewer_draws_are_the_first_of_each_chain(seed):
    model, common = count_model(), {"sampler": nw.NUTS(chains=2, warmup=50), "seed": seed, "on_failure": "return"}
    few, many = (nw.sample(model, count_release(), draws=draws, **common)["theta"] for draws in (100, 300))
    assert np.array_equal(few.reshape(2, 50), many.reshape(2, 150)[:, :50])


def test_other_seeds_give_other_draws(seed):
    a, b = (nw.sample(count_model(), count_release(), nw.Rejection(), draws=1_000, seed=s) for s in (seed, seed + 1))
    assert not np.intersect1d(a["theta"], b["theta"]).size


@pytest.mark.alone
def test_a_second_call_compiles_nothing(seed):
    import jax

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    lalonde, total, mixture = lalonde_model(), chunked_total(), mixture_model()
    calls = [
        lambda x: nw.sample(
            lalonde, lalonde_release((7.9 + x, 3.1, 66.0, 27.5)), nw.Rejection(), draws=1_000, seed=seed
        ),
        lambda x: nw.sample(
            total,
            nw.Release(t=nw.Laplace(epsilon=0.01 + x, sensitivity=1.0).released(x)),
            nw.Rejection(),
            draws=9,
            seed=seed,
        ),
        lambda x: nw.sample(
            mixture, nw.Release(s=nw.Gaussian(scale=2.0 + x).released(x)), nw.Rejection(), draws=1_000, seed=seed
        ),
        lambda x: nw.sample(
            lalonde,
            lalonde_release((7.9, x, 66.0, 27.5)).naive(),
            nw.Importance(),
            draws=1_000,
            seed=seed,
            on_failure="return",
        ),
    ]
    for call in calls:
        call(0.0)
        first = sum("compile" in event for event in compiled)
        compiled.clear()
        call(0.005)
        assert first > 0
        assert not [event for event in compiled if "compile" in event or "trace" in event]


# Order of completion ----------------------------------------------------------------------------------------------


class Timed(Engine):
    """Workers in a time of their own, which no other work on the machine disturbs.

    A block ends `spent[0]` after it began, where its work has put it, and results come in the order of their ends.
    """

    def __init__(self, spent, workers=8):
        self.spent, self.workers, self.now, self.busy = spent, workers, 0.0, 0

    def execute(self, source):
        flying, order = [], itertools.count()
        while True:
            while len(flying) < self.workers and (task := source.next_task(self.workers)) is not None:
                result = task.work(lambda: None)
                heapq.heappush(flying, (self.now + self.spent[0], next(order), task, result))
            self.busy = max(self.busy, len(flying))
            if source.finished or not flying:
                return
            self.now, _, task, result = heapq.heappop(flying)
            task.done(result)
            source.tick()


def drawn_in(order, seed, draws=20):
    """Blocks of one draw each, whose run time is its value."""
    spent = [0.0]

    def slow_when_large(rng, inputs, rows, poll):
        value = rng.standard_exponential(rows)
        spent[0] = float(value[0])
        return {"x": value}, np.arange(rows)

    stream = Stream(0, 1, slow_when_large, "x")
    if order == "completion":
        # Broken: whichever block arrives is taken as the next one.
        stream._done = lambda block, result: stream._early.__setitem__(stream.absorbed, result)
    outcome = run([stream], draws, seed, Purpose.PROPOSALS, engine=Timed(spent), progress=Progress(False, ""))
    return outcome.columns["x"]


def test_run_time_that_depends_on_theta_does_not_bias(seed):
    draws = np.concatenate([drawn_in("blocks", seed + i) for i in range(50)])
    assert agrees(draws, 1.0)


def test_order_of_completion_would_bias(seed):
    """Negative control: the first to finish are not a sample."""
    draws = np.concatenate([drawn_in("completion", seed + i) for i in range(50)])
    assert not agrees(draws, 1.0)


def slow_simulator(seed):
    """Posterior draws of p, symmetric about 1/2, with a simulator that takes far longer for large p."""
    spent = [0.0]

    def slow(rng, p):
        spent[0] = float(p > 0.5)
        return rng.binomial(10, p)

    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": nw.Simulator(slow)})
    release = nw.Release(yes=nw.DiscreteLaplace(scale=5.0).released(5))
    runs = [nw.sample(model, release, nw.Rejection(), draws=2, seed=seed + i, engine=Timed(spent)) for i in range(60)]
    return np.concatenate([run["p"] for run in runs])


@pytest.mark.parametrize("order", ["blocks", "completion"])
def test_slow_simulator_end_to_end(order, seed, monkeypatch):
    """Blocks of one proposal, so that a slow one shows; order of completion is the negative control."""
    monkeypatch.setattr(rejection, "LEAF_ROWS", 1)
    monkeypatch.setattr(rejection, "LEAST_ROWS", 1)
    if order == "completion":
        monkeypatch.setattr(Stream, "_done", lambda self, block, result: self._early.__setitem__(self.absorbed, result))
    assert agrees(slow_simulator(seed), 0.5) == (order == "blocks")


# Back-pressure ----------------------------------------------------------------------------------------------------


class Slow:
    """Blocks of `rows` draws that take one unit of time each; the third takes `longest`."""

    def __init__(self, longest, rows=1):
        self.longest, self.rows, self.spent = longest, rows, [0.0]
        self.stream = Stream(0, rows, self.block, "x")
        self.ahead = self.waiting = 0

    def block(self, rng, inputs, rows, poll):
        self.spent[0] = self.longest if self.stream.launched == 3 else 1.0
        self.ahead = max(self.ahead, self.stream.launched - self.stream.absorbed)
        self.waiting = max(self.waiting, len(self.stream._early))
        return {"x": rng.standard_normal(rows)}, np.arange(rows)

    def run(self, workers, draws, seed):
        engine = Timed(self.spent, workers)
        return run([self.stream], draws, seed, Purpose.PROPOSALS, engine=engine, progress=Progress(False, "")), engine


@pytest.mark.parametrize("workers", briefly([1, 8, 256, 1024], [1, 256]))
def test_every_worker_of_a_large_cluster_is_busy(workers, seed):
    blocks = 12 * workers
    outcome, engine = Slow(longest=8.0).run(workers, blocks, seed)
    assert engine.busy == workers
    assert engine.now <= 12 + 8  # as if no block waited for another, and the slow one last
    assert np.array_equal(outcome.columns["x"], Slow(1.0).run(8, blocks, seed)[0].columns["x"])


def test_a_window_that_does_not_grow_would_starve_a_large_cluster(seed, monkeypatch):
    """Negative control: 64 blocks ahead, for however many workers."""
    monkeypatch.setattr(Stream, "must_wait", lambda self, blocks, _: self.launched - self.absorbed >= 64)
    _, engine = Slow(longest=8.0).run(256, 12 * 256, seed)
    assert engine.busy == 64
    assert engine.now > 2 * (12 + 8)


def test_blocks_that_wait_for_a_slow_one_are_bounded_in_number(seed):
    case = Slow(longest=1e6)
    outcome, _ = case.run(4, 1_000, seed)
    assert case.ahead == streams.AHEAD * 4
    assert np.array_equal(outcome.columns["x"], Slow(1.0).run(8, 1_000, seed)[0].columns["x"])


@pytest.mark.parametrize("blocks", [3.5, 0.0])
def test_blocks_that_wait_for_a_slow_one_are_bounded_in_bytes(blocks, seed, monkeypatch):
    """One more than fit, and those that were under way by then; the slow one itself is never held up."""
    size = 12 * 1_000  # numbers, and their positions
    monkeypatch.setattr(streams, "total_memory", lambda: blocks * size / streams.WAITING)
    case = Slow(longest=1e6, rows=1_000)
    outcome, _ = case.run(4, 100_000, seed)
    assert case.waiting <= blocks + 1 + 3
    assert case.stream._early_bytes == sum(map(stream_module._size, case.stream._early.values()))
    assert np.array_equal(outcome.columns["x"], Slow(1.0, rows=1_000).run(8, 100_000, seed)[0].columns["x"])


# The plan ---------------------------------------------------------------------------------------------------------


def test_groups_are_components_of_the_prior():
    model = nw.Model(
        prior={
            "a": dist.Normal(0.0, 1.0),
            "b": lambda a: dist.Normal(a, 1.0),
            "c": dist.Normal(0.0, 1.0),
            "d": lambda c, b: dist.Normal(b + c, 1.0),
            "e": dist.Normal(0.0, 1.0),
        },
        statistics={"s": lambda d, e: dist.Normal(d + e, 1.0)},
    )
    problem = Problem(model, nw.Release(s=nw.Laplace(scale=1.0).released(0.0)))
    assert sorted(map(sorted, prior_groups(problem))) == [["a", "b", "c", "d"], ["e"]]


def test_lalonde_plan_is_a_tree_that_never_repeats_a_name():
    problem = Problem(lalonde_model(), lalonde_release(RELEASED))
    (root,) = plan_streams(problem, joint=False)
    labels, fresh = [], []

    def visit(stream):
        labels.append(stream.label)
        fresh.extend(stream.work.fresh)
        for child in stream.children:
            visit(child)

    visit(root)
    assert sorted(labels) == ["'mean_c'", "'mean_t'", "'var_c'", "'var_t'"]
    assert sorted(fresh) == sorted([*problem.model.parameters, *problem.model.statistics])


@pytest.mark.quick
def test_each_child_row_is_used_once(seed):
    """Every survivor of a child goes into exactly one proposal of its parent, in order."""
    seen = []
    lock = threading.Lock()

    def child(rng, inputs, rows, poll):
        keep = np.flatnonzero(rng.random(rows) < 0.3)
        return {"id": rng.integers(0, 2**62, rows)[keep]}, keep

    def parent(rng, inputs, rows, poll):
        with lock:
            seen.append(inputs["id"])
        keep = np.flatnonzero(rng.random(rows) < 0.5)
        return {"id": inputs["id"][keep]}, keep

    below = Stream(0, 256, child, "child")
    above = Stream(1, 64, parent, "parent", [below])
    outcome = run([above], 3_000, seed, Purpose.PROPOSALS, engine=Threads(4), progress=Progress(False, ""))
    used = np.concatenate(seen)
    assert len(np.unique(used)) == len(used)
    assert len(np.unique(outcome.columns["id"])) == 3_000


def test_pruning_leaves_the_tally_of_a_row_still_to_come_as_it_is():
    """A child's block ends with the last row used: what the child makes later is no work for the rows so far."""
    below = Stream(0, 4, None, "child")
    above = Stream(1, 4, None, "parent", [below])
    below._done(0, ({"x": np.arange(4)}, np.arange(4)))
    below.absorb()
    above.next_task(1, Purpose.PROPOSALS)
    above._done(0, ({"x": np.arange(0)}, np.arange(0)))
    above.absorb()
    above.prune([(-1, math.inf)])
    below._done(1, ({"x": np.arange(1)}, np.arange(1)))
    below.absorb()
    assert [proposals for _, _, proposals in above.tally(1)] == [4, 4]


def test_pruning_leaves_what_a_look_at_every_pair_would_leave(seed):
    """Spans and positions, both in order, however they lie to each other; empty spans among them."""
    rng = np.random.default_rng(seed)
    for _ in range(300):
        sizes = rng.integers(1, 5, rng.integers(0, 12))
        firsts = np.concatenate([[0], np.cumsum(sizes)])[: len(sizes)]
        ends = np.sort(rng.integers(-1, sizes.sum() + 4, 2 * rng.integers(1, 6)))
        spans = [(float(low), float(high)) for low, high in ends.reshape(-1, 2)] + [(float(ends[-1]), math.inf)]
        stream = Stream(0, 8, None, "rows")
        stream._positions.extend(
            (int(a), n, np.arange(size)) for n, (a, size) in enumerate(zip(firsts, sizes, strict=True))
        )
        wanted = [n for a, n, p in stream._positions if any(low < a + len(p) and a < high for low, high in spans)]
        stream.prune(spans)
        assert [n for _, n, _ in stream._positions] == wanted


def test_proposals_are_counted_up_to_and_with_the_last_survivor():
    """The number of proposals that so many survivors took is a stopping time: not one more, nor one less."""
    stream, kept = Stream(0, 8, None, "rows"), [np.array([1, 6]), np.array([], int), np.array([0, 7])]
    for block, positions in enumerate(kept):
        stream.launched += 1
        stream._done(block, ({"x": positions}, positions))
        stream.absorb()
    assert [stream.proposals_until(survivors) for survivors in range(5)] == [0, 2, 7, 17, 24]


# Evidence ---------------------------------------------------------------------------------------------------------


@cache
def two_merges():
    model = nw.Model(
        prior={"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)},
        statistics={"x": lambda a: dist.Normal(a, 1.0), "y": lambda a, b: dist.Normal(a + b, 1.0)},
    )
    release = nw.Release(x=nw.Gaussian(scale=1.0).released(0.5), y=nw.Gaussian(scale=1.0).released(-1.0))
    covariance = np.array([[3.0, 1.0], [1.0, 4.0]])
    from scipy.stats import multivariate_normal

    return model, release, float(multivariate_normal(np.zeros(2), covariance).pdf([0.5, -1.0]))


@pytest.mark.long
@pytest.mark.parametrize("plan", ["divide", "joint"])
def test_evidence_is_unbiased_on_the_natural_scale(plan, seed):
    """Short runs, where a biased estimate shows: k = 4 draws each. k/N fails the same check."""
    model, release, truth = two_merges()
    sampler = nw.Rejection(plan=plan)
    runs = [nw.sample(model, release, sampler, draws=4, seed=seed + i, engine=Threads(1)) for i in range(800)]
    unbiased = np.array([math.exp(r.log_evidence) for r in runs])
    assert agrees(unbiased, truth)
    ratios = np.array([np.prod([m["accepted"] / m["proposals"] for m in r.diagnostics["merges"]]) for r in runs])
    sup = math.exp(runs[0].log_evidence) / runs[0].acceptance_rate
    assert not agrees(sup * ratios, truth)


def test_evidence_error_is_honest(seed):
    """Negative controls: errors of half the size, and of twice the size."""
    model, release, truth = two_merges()
    runs = [nw.sample(model, release, nw.Rejection(), draws=200, seed=seed + i, engine=Threads(1)) for i in range(100)]
    z = np.array([(r.log_evidence - math.log(truth)) / r.log_evidence_se for r in runs])
    assert errors_agree(z, slack=0.05)  # the log's own curvature is of order 1/k
    assert not errors_agree(2.0 * z, slack=0.05)
    assert not errors_agree(0.5 * z, slack=0.05)


def test_one_draw_gives_no_evidence(seed):
    posterior = nw.sample(count_model(), count_release(), nw.Rejection(), draws=1, seed=seed)
    assert math.isnan(posterior.log_evidence)
    assert posterior.log_evidence_se == math.inf


# Budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["divide", "joint"])
def test_max_proposals_gives_the_same_prefix_on_any_threads(plan, seed):
    model, release = lalonde_model(), lalonde_release(RELEASED)
    sampler = nw.Rejection(plan=plan, max_proposals=400_000)
    runs = []
    for workers in (1, 3):
        with pytest.warns(nw.NoisewiseWarning, match="need more than max_proposals=400000"):
            runs.append(
                nw.sample(model, release, sampler, draws=10**6, seed=seed, engine=Threads(workers), on_failure="return")
            )
    assert all(r.status == "max_proposals" for r in runs)
    assert len({len(r) for r in runs}) == 1
    assert len(runs[0]) > 10
    full = nw.sample(model, release, nw.Rejection(plan=plan), draws=len(runs[0]) + 20, seed=seed)
    assert runs[0].proposals <= 400_000
    assert all(np.array_equal(r["mu"], full["mu"][: len(r)]) for r in runs)
    assert "400000" in runs[0].message


def test_max_proposals_just_below_what_the_draws_need(seed):
    """The last block alone would complete the run: the limit holds all the same, on any number of threads."""
    model, release = count_model(), count_release()
    full = nw.sample(model, release, nw.Rejection(), draws=15_000, seed=seed)
    sampler = nw.Rejection(max_proposals=40_000)
    more = None
    for workers in (1, 2, 4, 2, 4):
        found = nw.sample(
            model, release, sampler, draws=15_000, seed=seed, engine=Threads(workers), on_failure="return"
        )
        assert found.status == "max_proposals"
        assert found.proposals <= 40_000
        assert f"allowed {len(found)} of 15000" in found.message
        assert np.array_equal(found["theta"], full["theta"][: len(found)])
        if more is None:
            more = nw.sample(model, release, nw.Rejection(), draws=len(found) + 1, seed=seed)
        assert len(more) == len(found) + 1
        assert more.proposals > 40_000  # no draw was left out that the limit allowed
    exact = nw.Rejection(max_proposals=full.proposals)
    assert nw.sample(model, release, exact, draws=15_000, seed=seed).status == "complete"


def test_no_draws_within_the_limit(seed):
    found = nw.sample(
        count_model(2.0), count_release(), nw.Rejection(max_proposals=1), draws=10, seed=seed, on_failure="return"
    )
    assert len(found) == 0
    assert math.isnan(found.log_evidence)
    assert math.isnan(found.acceptance_rate)


def test_hopeless_acceptance_is_noticed_early(seed):
    model = nw.Model(prior={"m": dist.Normal(0.0, 1.0)}, statistics={"s": lambda m: dist.Normal(m, 1.0)})
    release = nw.Release(s=nw.Laplace(scale=0.01).released(30.0))
    with pytest.raises(nw.InferenceError, match=r"'s' were accepted .* Prior and release disagree") as caught:
        nw.sample(model, release, nw.Rejection(), draws=1_000, seed=seed)
    assert caught.value.result.status == "hopeless"
    assert caught.value.result.proposals < 2 * 10**7  # of the 10**9 allowed
    assert len(caught.value.result) == 0
    assert math.isnan(caught.value.result.log_evidence)


def test_clock_budget_says_that_it_may_bias(seed):
    def slow(rng, p):
        time.sleep(0.002)
        return rng.binomial(10, p)

    model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": nw.Simulator(slow)})
    release = nw.Release(yes=nw.DiscreteLaplace(scale=3.0).released(5))
    sampler = nw.Rejection(max_seconds=0.4)
    posterior = nw.sample(model, release, sampler, draws=10**6, seed=seed, on_failure="return")
    assert posterior.status == "max_seconds"
    assert "biased" in posterior.message
    assert posterior.seconds < 10


@pytest.mark.usefixtures("ctrl_c")
def test_interrupt_keeps_what_was_accepted(seed):
    """Ctrl-C in a run of its own, as a user would press it: once some blocks are done."""
    import subprocess
    import sys

    script = f"""
import _thread
import noisewise as nw
from noisewise.inference.stream import Stream
from targets import count_model, count_release
absorb, done = Stream.absorb, []
def pressed(self):
    done.append(self)
    if len(done) == 50:
        _thread.interrupt_main()
    return absorb(self)
Stream.absorb = pressed
try:
    nw.sample(count_model(2.0), count_release(), nw.Rejection(), draws=10**7, seed={seed})
except nw.InferenceError as error:
    print(error.result.status, len(error.result) > 0, "interrupted with" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd="tests/helpers", timeout=120, check=False
    )
    assert done.stdout.split() == ["interrupted", "True", "True"], done.stderr


def test_worker_errors_reach_the_caller(seed):
    def broken(rng, p):
        if p > 0.5:
            raise ZeroDivisionError("no such p")
        return rng.binomial(10, p)

    def run_it():
        model = nw.Model(prior={"p": dist.Beta(1.0, 1.0)}, statistics={"yes": nw.Simulator(broken)})
        nw.sample(
            model, nw.Release(yes=nw.DiscreteLaplace(scale=3.0).released(5)), nw.Rejection(), draws=100, seed=seed
        )

    with pytest.raises(nw.InferenceError, match=r"raised ZeroDivisionError: no such p at p=0\.\d+"):
        run_it()


def test_limit_is_the_stated_one():
    assert pytest.approx(4.89, abs=0.01) == LIMIT


def test_blocks_do_not_pile_up_behind_a_slow_one(seed):
    """While block 0 is slow, only so many others may wait for it."""
    waiting = []

    def work(rng, inputs, rows, poll):
        if not waiting:
            waiting.append(True)
            time.sleep(0.5)
        return {"x": rng.random(rows)}, np.arange(rows)

    stream = Stream(0, 4, work, "x")
    seen = []
    absorb = stream.absorb
    stream.absorb = lambda: (seen.append(len(stream._early)), absorb())[1]
    run([stream], 2_000, seed, Purpose.PROPOSALS, engine=Threads(2), progress=Progress(False, ""))
    assert max(seen) <= 64


@pytest.mark.alone
def test_a_run_that_will_take_long_says_so(seed, monkeypatch):
    clock = iter(np.arange(0.0, 1e7, 400.0))
    monkeypatch.setattr("noisewise.inference.streams.time.monotonic", lambda: float(next(clock)))
    with pytest.warns(nw.NoisewiseWarning, match=r"draws after \d+ s \(.* accepted for 'count'\): .* minutes to go"):
        nw.sample(
            count_model(2.0), count_release(), nw.Rejection(), draws=2_000, seed=seed, progress=False, engine=Threads(1)
        )


@pytest.mark.parametrize(
    ("done", "told"), [(500, None), (20, "about 18 minutes to go"), (10, "about 513 minutes to go")]
)
def test_time_that_programs_take_to_compile_is_not_taken_for_the_pace(done, told, seed):
    """10 of 1,000 draws came after 300 s, and then in 11 s all that there are."""
    stream = Stream(0, 4, None, "x")
    source = StreamsRun([stream], 1_000, seed, Purpose.PROPOSALS, Budget(), Progress(False, ""))
    stream.absorbed, source.filled = 1, [10]
    source._warn_of_a_long_run(300.0)
    source.filled = [done]
    with pytest.warns(nw.NoisewiseWarning, match=told) if told else nullcontext():
        source._warn_of_a_long_run(311.0)
