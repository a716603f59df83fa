"""Simulation-based calibration: does a sampler, run on data made by the model itself, give the right posterior?

Parameters are drawn from the prior, statistics from the model, releases from the mechanisms. If the sampler is right,
the true value is exchangeable with its draws, so its rank among them is uniform (Talts et al. 2018). Ranks of log eta,
which depends on the release too, show mistakes that ranks of parameters cannot (Modrak et al. 2023). docs/calibrate.md.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.axes import Coords
from noisewise.diagnostics import chains, uniformity, weights
from noisewise.diagnostics.uniformity import FALSE_ALARM
from noisewise.engine import Engine
from noisewise.errors import InferenceError, InputError, refusal
from noisewise.frozen import FrozenDict
from noisewise.inference.measured import measurements, with_measurements
from noisewise.inference.problem import Problem
from noisewise.inference.progress import Progress
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.mechanisms import Exact, Mechanism
from noisewise.mechanisms.linear import Linear
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.plots.calibration import plot_calibration
from noisewise.release import Release
from noisewise.results.labels import label_of
from noisewise.results.posterior import Posterior
from noisewise.samplers.sample import sample

BLOCK = 64
"""Replicates whose truths are drawn together: more replicates continue the same sequence."""
MOST_RANKED = 127
"""Draws that a rank is taken among, where draws are dependent or weighted and must be thinned."""
MOST_ENTRIES = 32
"""Entries of one parameter or statistic that are ranked, evenly spaced, where it has more."""
LOG_ETA = "log eta"


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Where true values lie among a sampler's draws, over many simulated releases."""

    positions: Mapping[str, Array]
    """For each quantity, the randomised rank of the truth among the draws, as a number between 0 and 1."""
    sizes: Array
    """How many draws each rank is among, replicate by replicate."""
    failures: tuple[dict[str, Any], ...]
    """Replicates whose run did not complete: number, seed, status, message. They have no positions."""
    sampler: Sampler | None
    draws: int
    seed: int
    asked: int
    """Replicates asked for; fewer were run only after an interruption."""
    seconds: float = field(default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", FrozenDict(self.positions))
        for values in (*self.positions.values(), self.sizes):
            values.flags.writeable = False

    @property
    def replicates(self) -> int:
        """Replicates that were run, failed ones included."""
        return len(self.sizes) + len(self.failures)

    @cached_property
    def p_values(self) -> dict[str, float]:
        """Exact p-value of uniformity by quantity."""
        return {label: uniformity.p_value(values) for label, values in self.positions.items()}

    @property
    def p_value(self) -> float:
        """p-value of all quantities together: the smallest, times their number (Bonferroni; valid under dependence)."""
        return min(1.0, len(self.p_values) * min(self.p_values.values())) if len(self.sizes) else float("nan")

    @property
    def verdict(self) -> str:
        """ "calibrated", "miscalibrated", or "failed" where ranks look uniform but some replicates did not complete."""
        if len(self.sizes) and self.p_value < FALSE_ALARM:
            return "miscalibrated"
        return "failed" if self.failures or not len(self.sizes) else "calibrated"

    @property
    def passed(self) -> bool:
        """Whether the verdict is "calibrated"."""
        return self.verdict == "calibrated"

    def table(self) -> Any:
        """A pandas table by quantity: p-value, mean position (0.5 if right), spread (1 if right), what it suggests."""
        import pandas as pd

        rows = {label: self._row(label, values) for label, values in self.positions.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["p_value", "mean", "spread", "reading"])

    def _row(self, label: str, values: Array) -> dict[str, Any]:
        size = max(len(values), 1)
        mean = float(values.mean()) if len(values) else float("nan")
        spread = float(12.0 * np.mean((values - 0.5) ** 2)) if len(values) else float("nan")
        reading = ""
        if self.p_values[label] * len(self.p_values) < FALSE_ALARM:
            # Standard errors under uniformity: 1/sqrt(12 n) of the mean, sqrt(4/5)/sqrt(n) of 12 (u - 1/2)^2.
            aside, wide = (mean - 0.5) * np.sqrt(12.0 * size), (spread - 1.0) * np.sqrt(1.25 * size)
            if abs(aside) >= abs(wide):
                reading = "draws too low" if aside > 0 else "draws too high"
            else:
                reading = "draws too narrow" if wide > 0 else "draws too wide"
        return {"p_value": self.p_values[label], "mean": mean, "spread": spread, "reading": reading}

    def plot(self) -> Any:
        """A matplotlib figure: each quantity's distribution function, less the diagonal, within simultaneous bands."""
        if len(self.sizes) == 0:
            raise refusal("Calibration.plot", "replicates", "must include one that completed", 0, "See .failures.")
        title = f"{self._sampler_name}: {self.verdict}, {self.replicates} replicates"
        return plot_calibration(self.positions, self.p_values, len(self.sizes), title)

    @property
    def _sampler_name(self) -> str:
        return "the chosen sampler" if self.sampler is None else type(self.sampler).__name__

    def headline(self) -> str:
        """The verdict and what it rests on, in one line."""
        headline = f"Calibration of {self._sampler_name}: {self.verdict}, p = {self.p_value:.3g}"
        headline += f" over {len(self.positions)} quantities, {self.replicates} replicates of {self.draws:,} draws"
        headline += f", seed {self.seed}"
        if self.failures:
            first = self.failures[0]
            headline += f"; {len(self.failures)} failed (replicate {first['replicate']}: {first['status']}: "
            headline += f"{first['message']}), so the ranks speak for the others only"
        if self.replicates < self.asked:
            headline += f"; interrupted before {self.asked}"
        return headline

    def __repr__(self) -> str:
        return f"{self.headline()}\n{self.table().to_string(float_format=lambda x: f'{x:.3g}')}"

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(self.headline())}</p>{self.table().to_html(float_format=lambda x: f'{x:.3g}')}</div>"


def calibrate(
    model: Model,
    mechanisms: Mapping[str, Mechanism] | Release,
    sampler: Sampler | None,
    *,
    replicates: int = 200,
    draws: int = 1_000,
    seed: int = 1,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> Calibration:
    """Simulate `replicates` releases from the model and its mechanisms, sample each, and rank the true values.

    `mechanisms` names the mechanism of each released statistic, or is a release, of which mechanisms and labels count
    and values do not. `sampler` None calibrates `nw.sample`'s own choice.
    A replicate whose run does not complete counts as a failure, and then the verdict is not "calibrated".
    """
    replicates = checks.integer("calibrate", "replicates", replicates, least=10, advice="Ask for 200, say.")
    draws = checks.integer("calibrate", "draws", draws, least=1, advice="Ask for 1_000, say.")
    seed = checks.integer("calibrate", "seed", seed, least=0, advice="Give a whole number from 0 on, for example 1.")
    labels: dict[str, Coords] = {}
    measured: dict[str, Linear] = {}
    if isinstance(mechanisms, Release):
        labels = {name: item.coords for name, item in mechanisms.items()}
        measured = {name: item.of for name, item in mechanisms.items() if item.of is not None}
        if measured and isinstance(model, Model):
            model = with_measurements(model, measurements(model, mechanisms))
        mechanisms = {name: item.mechanism for name, item in mechanisms.items()}
    _check(model, mechanisms)
    start = time.monotonic()
    rows: list[dict[str, float]] = []
    sizes: list[int] = []
    failures: list[dict[str, Any]] = []
    with Progress(progress, "calibrate") as bar:
        for number, (truth, release) in enumerate(simulated(model, mechanisms, replicates, seed, labels, measured)):
            run_seed = int(generator(seed, Purpose.CALIBRATION_SEED, number).integers(2**62))
            status, message, posterior = _run(model, release, sampler, draws, run_seed, engine, number == 0)
            if status == "interrupted":
                break
            if status == "complete" and posterior is not None:
                rng = generator(seed, Purpose.CALIBRATION_RANKS, number)
                ranked, size = positions(rng, Problem(model, release), truth, posterior)
                rows.append(ranked)
                sizes.append(size)
            else:
                failures.append({"replicate": number, "seed": run_seed, "status": status, "message": message})
            bar.update((number + 1) * draws, replicates * draws, lambda: 0)
    if not rows and not failures:
        raise KeyboardInterrupt
    columns = {label: np.array([row[label] for row in rows]) for label in (rows[0] if rows else {})}
    seconds = time.monotonic() - start
    return Calibration(columns, np.array(sizes, int), tuple(failures), sampler, draws, seed, replicates, seconds)


def _check(model: Any, mechanisms: Any) -> None:
    if not isinstance(model, Model):
        raise refusal("calibrate", "model", "must be a noisewise Model", model, "Build it with nw.Model.")
    advice = "Give {'count': nw.Laplace(scale=5.0)}, say."
    if not isinstance(mechanisms, Mapping) or not mechanisms:
        raise refusal("calibrate", "mechanisms", "must be a dict of names with their mechanisms", mechanisms, advice)
    for name, mechanism in mechanisms.items():
        checks.known_name("calibrate", "mechanisms", name, model.statistics, "must name statistics")
        if not isinstance(mechanism, Mechanism):
            raise refusal("calibrate", f"mechanisms['{name}']", "must be a mechanism", mechanism, advice)
        for other in mechanism.inputs:
            if other not in model.order:
                near = checks.nearest(other, model.order)
                rule = "reads a value the model must have"
                raise refusal("calibrate", f"mechanisms['{name}']", rule, other, near)


def simulated(
    model: Model,
    mechanisms: Mapping[str, Mechanism],
    replicates: int,
    seed: int,
    labels: Mapping[str, Coords] = FrozenDict(),
    measured: Mapping[str, Linear] = FrozenDict(),
) -> Iterator[tuple[dict[str, Array], Release]]:
    """True values by name and the release made from them, replicate by replicate."""
    for first in range(0, replicates, BLOCK):
        rng = generator(seed, Purpose.CALIBRATION_TRUTHS, first // BLOCK)
        values = model.draw(rng, model.order, BLOCK)
        noisy = {}
        for name, mechanism in mechanisms.items():
            extra = {other: values[other] for other in mechanism.inputs}
            noisy[name] = mechanism.sample(rng, values[name], **extra)
        for row in range(min(BLOCK, replicates - first)):
            released = {
                name: replace(mechanism.released(noisy[name][row], labels.get(name)), of=measured.get(name))
                for name, mechanism in mechanisms.items()
            }
            yield {name: column[row] for name, column in values.items()}, Release(released)


def _run(
    model: Model,
    release: Release,
    sampler: Sampler | None,
    draws: int,
    seed: int,
    engine: Engine | None,
    first: bool,
) -> tuple[str, str, Posterior | None]:
    """(status, message, posterior). What is refused at the first replicate is the caller's mistake, not a failure."""
    try:
        posterior = sample(
            model, release, sampler, draws=draws, seed=seed, engine=engine, progress=False, on_failure="return"
        )
    except InferenceError as error:
        return "error", str(error), None
    except InputError as error:
        if first:
            raise
        return "refused", str(error), None
    return posterior.status, posterior.message, posterior


def positions(
    rng: np.random.Generator, problem: Problem, truth: dict[str, Array], posterior: Posterior
) -> tuple[dict[str, float], int]:
    """Position of the truth among the posterior's draws by quantity, and among how many draws.

    (rank + U) / (L + 1), the rank a random one among ties: uniform if the truth is exchangeable with the L draws.
    """
    log_eta = _log_eta(problem, truth, posterior)
    chosen = exchangeable(rng, posterior, log_eta[1:])
    columns = {LOG_ETA: log_eta[1:][chosen]}
    targets: dict[str, Any] = {LOG_ETA: log_eta[0]}
    for name, values in posterior.draws.items():
        if name in posterior.derived:
            continue  # right if the draws it is computed from are
        if name in problem.release and isinstance(problem.release[name].mechanism, Exact):
            continue  # known, not inferred
        for index in _entries(values.shape[1:]):
            label = label_of(name, index, posterior.axes)
            at: Any = (slice(None), *index)
            columns[label] = values[at][chosen]
            targets[label] = truth[name][index]
    by_label = {}
    for label in [*(label for label in columns if label != LOG_ETA), LOG_ETA]:
        below, ties = np.sum(columns[label] < targets[label]), np.sum(columns[label] == targets[label])
        by_label[label] = float((below + rng.integers(ties + 1) + rng.random()) / (len(chosen) + 1))
    return by_label, len(chosen)


def _log_eta(problem: Problem, truth: dict[str, Array], posterior: Posterior) -> Array:
    """log density of the release, at the truth and then at each draw.

    A statistic without noise has its law's own density instead, where that is known. Rounded, so that equal values
    tie whatever lane of the processor they were computed in.
    """
    values = {
        name: np.concatenate([truth[name][None], column]) for name, column in posterior.draws.items() if name in truth
    }
    total = np.zeros(len(posterior) + 1)
    for name, item in problem.release.items():
        if not isinstance(item.mechanism, Exact):
            total = total + problem.log_eta(name, values)
        elif problem.model.has_density(name):
            total = total + problem.model.log_prob(name, item.value, values)
    return np.round(total, 9)


def _entries(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    indices = list(np.ndindex(shape))
    if len(indices) <= MOST_ENTRIES:
        return indices
    return [indices[index] for index in np.linspace(0, len(indices) - 1, MOST_ENTRIES).astype(int)]


def exchangeable(rng: np.random.Generator, posterior: Posterior, log_eta: Array) -> Array:
    """Indices of draws that may stand for independent, equally weighted ones.

    Independent draws: all. Chains: as many as their effective size, evenly spaced; islands: as many, at random.
    Weighted draws: a resample of a quarter of their effective size, so that few rows come twice. Of dependent or
    weighted draws at most `MOST_RANKED`.
    """
    size = len(posterior)
    if posterior.log_weights is not None:
        worth = weights.effective_size(posterior.log_weights) / 4.0
        return weights.systematic(rng, posterior.log_weights, int(np.clip(worth, 1, MOST_RANKED)))
    groups = posterior.chains or posterior.islands
    if groups is None:
        return np.arange(size)
    summary = posterior.summary()
    sizes = [summary[column].min() for column in ("ess", "ess_tail") if column in summary]
    if posterior.chains is not None:
        sizes.append(float(chains.bulk_size(chains.by_chain(log_eta, groups))[0]))
    wanted = int(np.clip(np.nan_to_num(np.nanmin(sizes), nan=1.0), 1, min(MOST_RANKED, size)))
    order = np.arange(size) if posterior.chains is not None else rng.permutation(size)
    return order[((np.arange(wanted) + rng.random()) * size / wanted).astype(int)]
