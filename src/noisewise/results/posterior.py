"""The result of a Bayesian run: frozen draws with their diagnostics and what it takes to replay them."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from noisewise import checks
from noisewise._version import current_versions
from noisewise.axes import Axes
from noisewise.diagnostics import chains, tails, weights
from noisewise.errors import InputError, refusal, writable
from noisewise.frozen import FrozenDict
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose, generator
from noisewise.inference.settings import Sampler
from noisewise.inference.status import POSTERIOR, check_status
from noisewise.model.graph import dependencies
from noisewise.model.on_device.held import FULL, Held
from noisewise.model.simulator import read_only
from noisewise.notebook import for_people
from noisewise.numerics import Array
from noisewise.results import decisions, groups, intervals, on_device, power_scaling, replicates
from noisewise.results import derived as derivation
from noisewise.results import posterior_file as result_file
from noisewise.results import posterior_netcdf as netcdf
from noisewise.results.drawn import frozen_draws, where_they_are
from noisewise.results.draws_table import draws_table
from noisewise.results.labels import label_of, labels_of
from noisewise.results.naming import Naming

FORMAT = "noisewise-posterior"
VERSION = 1
PLAIN = (
    *("status", "message", "reason", "seed", "release_hash", "acceptance_rate", "proposals", "seconds"),
    *("log_evidence", "log_evidence_se", "chains", "superchains", "islands"),
)
"""Fields that go into the file's metadata as they are."""
UNREADABLE = (LookupError, OSError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
"""What HDF5, xarray and JSON raise at files that they cannot read."""


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenDict({name: _frozen(item) for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return read_only(value) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws from the exact posterior of parameters and confidential statistics, by name."""

    draws: Mapping[str, Array]
    parameters: tuple[str, ...]
    released: Mapping[str, Any]
    release_hash: str
    sampler: Sampler
    seed: int
    status: str = "complete"
    message: str = ""
    reason: str = ""
    log_weights: Array | None = None
    acceptance_rate: float | None = None
    proposals: int | None = None
    log_evidence: float | None = None
    log_evidence_se: float | None = None
    seconds: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=current_versions)
    chains: int | None = None
    """Markov chains that the draws come from, chain by chain; None where draws are independent."""
    superchains: int | None = None
    """Groups of neighbouring chains that shared a starting point, where there are many chains."""
    islands: int | None = None
    """Independently run populations that the draws come from, one after the other."""
    axes: Axes = field(default_factory=Axes)
    """Names of the draws' axes after the first, and the labels along them."""
    derived: tuple[str, ...] = ()
    """Names among the draws of quantities computed from others; see `derive`."""
    naming: Naming = field(default_factory=Naming)
    """What people call the quantities, and their units; see `described`."""
    problem: Problem | None = field(default=None, repr=False)
    """Model and release, as long as the process lasts: files and pickles do not hold them."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"problem": None}

    def __post_init__(self) -> None:
        check_status("Posterior", self.status, POSTERIOR)
        object.__setattr__(self, "draws", frozen_draws(self.draws))
        for name in ("released", "diagnostics", "versions"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        if self.log_weights is not None:
            object.__setattr__(self, "log_weights", read_only(self.log_weights))

    # Draws -------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Array:
        """Draws of a parameter or confidential statistic; the first axis is the draw; read-only."""
        if name not in self.draws:
            raise KeyError(f"Posterior: no '{name}'. {checks.nearest(name, self.draws)}")
        return self.draws[name]

    def __len__(self) -> int:
        return len(next(iter(where_they_are(self.draws).values()))) if self.draws else 0

    def __contains__(self, name: object) -> bool:
        return name in self.draws

    def __iter__(self) -> Iterator[str]:
        """The names, as a data frame gives those of its columns; `len` counts draws."""
        return iter(self.draws)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the confidential statistics among the draws."""
        return tuple(name for name in self.draws if name not in self.parameters and name not in self.derived)

    def derive(self, *, dims: Mapping[str, tuple[str, ...]] | None = None, **functions: Any) -> "Posterior":
        """With quantities computed from the draws: `posterior.derive(gap=lambda p1, p2: p1 - p2)`.

        Each function takes one value of each parameter, statistic or derived quantity that it names as an argument, as
        the model's own functions do, and gives a number, an array, or a truth value, whose mean is a probability. It is
        applied to every draw, so weights, chains, Monte Carlo errors, pictures and files are as for parameters. An
        array has the axes and labels of the argument of its shape, or those named in `dims`.
        """
        return derivation.derive(self, functions, dims)

    def described(
        self, *, labels: Mapping[str, str] | None = None, units: Mapping[str, str] | None = None
    ) -> "Posterior":
        """With labels and units by name: `posterior.described(labels={"gap": "Difference"}, units={"gap": "euros"})`.

        Pictures, `to_arviz` and files have them. What a release says of its statistics (`released.described(...)`) is
        known already.
        """
        names = [*self.draws, *(name for name in self.released if name not in self.draws)]
        naming = self.naming | Naming.checked("Posterior.described", labels, units, names)
        return replace(self, naming=naming)

    @cached_property
    def weights(self) -> Array | None:
        """Normalised weights, or None where every draw counts alike."""
        return None if self.log_weights is None else read_only(weights.normalised(self.log_weights))

    @property
    def ess(self) -> dict[str, float]:
        """Effective number of draws by name, that of the worst entry.

        All of them when independent, Kish's number when weighted, the bulk effective size for chains.
        """
        return {name: _worst(precision["ess"]) for name, precision in self._precision.items()}

    @property
    def r_hat(self) -> dict[str, float] | None:
        """Agreement of the chains by name, that of the worst entry; None where draws are independent."""
        if self.chains is None:
            return None
        return {name: _worst(-precision["r_hat"]) * -1.0 for name, precision in self._precision.items()}

    @cached_property
    def _precision(self) -> dict[str, dict[str, Array]]:
        """For every name, entry by entry: effective size, error of the mean and, for chains, tail size and R-hat."""
        return {name: self._there_or_here(name, self._precision_there, self.precision_of) for name in self.draws}

    def _there_or_here(self, name: str, there: Callable[[Held], Any], here: Callable[[Array], Any]) -> Any:
        """`there` of independent draws that stayed on an accelerator, if its memory suffices; else `here`."""
        column = where_they_are(self.draws)[name]
        alike = self.log_weights is None and self.chains is None and self.islands is None
        if isinstance(column, Held) and alike:
            try:
                return there(column)
            except jax.errors.JaxRuntimeError as error:
                if FULL not in str(error):
                    raise
        return here(np.asarray(self.draws[name], float))

    def _precision_there(self, column: Held) -> dict[str, Array]:
        """`precision_of` independent draws on an accelerator."""
        _, spread = on_device.mean_and_sd(column)
        return {"ess": np.full(spread.shape, float(len(self))), "mcse": spread / np.sqrt(len(self))}

    def precision_of(self, values: Array) -> dict[str, Array]:
        """Effective size, and error of the mean, of one value for each draw, entry by entry."""
        values = values.astype(float)
        shape = values.shape[1:]
        groups = self.chains or self.islands
        if groups is None or len(self) == 0:
            size = float(len(self)) if self.log_weights is None else weights.effective_size(self.log_weights)
            return {"ess": np.full(shape, size), "mcse": weights.standard_error(values, self.weights)}
        spread = values.std(axis=0)
        x = chains.by_chain(values, groups)
        if self.islands is not None:
            sizes = chains.island_size(x).reshape(shape)
            return {"ess": sizes, "mcse": spread / np.sqrt(sizes)}
        precision = {"ess": chains.bulk_size(x), "ess_tail": chains.tail_size(x)}
        precision |= {"r_hat": chains.r_hat(x, self.superchains), "mean": chains.effective_size(chains.halves(x))}
        precision = {key: item.reshape(shape) for key, item in precision.items()}
        return precision | {"mcse": spread / np.sqrt(precision.pop("mean"))}

    @cached_property
    def _tails(self) -> dict[str, Array]:
        """For every name, entry by entry, the shape of the tail where that is too heavy for moments, else NaN."""
        return {
            name: self._there_or_here(name, on_device.heavy_tails, partial(self._tails_of, size))
            for name, size in self.ess.items()
        }

    def _tails_of(self, size: float, values: Array) -> Array:
        """The shapes of `_tails` for values that are worth `size` independent ones."""
        usable = len(self) > 0 and (self.weights is None or bool(np.all(np.isfinite(self.weights))))
        return tails.heavy_tails(values[tails.without_repeats(len(self), size, self.weights) if usable else slice(0)])

    @cached_property
    def heavy_tails(self) -> dict[str, float]:
        """The scalars, if any, whose tails are too heavy for mean and standard deviation, with the tails' shapes."""
        return {
            label_of(name, index, self.axes): float(shapes[index])
            for name, shapes in self._tails.items()
            for index in np.ndindex(shapes.shape)
            if not np.isnan(shapes[index])
        }

    @property
    def without_moments(self) -> str:
        """What to say of `heavy_tails`; empty where there are none."""
        if not self.heavy_tails:
            return ""
        named = [f"{label} (tail shape {k:.2f})" for label, k in list(self.heavy_tails.items())[:5]]
        others = len(self.heavy_tails) - len(named)
        shapes = ", ".join(named) + (f" and {others} others" if others else "")
        return (
            f"No mean, standard deviation or Monte Carlo error is given for {shapes}: with a tail of shape 1 a law has "
            "no mean, from 1/2 on no standard deviation. Quantiles exist: read the median and the interval."
        )

    # Tables ------------------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> Any:
        """A pandas table: mean, sd, central interval, effective draws, Monte Carlo standard error.

        For chains also the effective draws in the tails and R-hat. A scalar whose tail is too heavy for mean and sd to
        exist (`heavy_tails`) has NaN in their place; then the table has a column with medians, too. Its `style` is for
        a paper.
        """
        from noisewise.results.summary_table import SummaryTable  # a class of pandas', which takes long to import

        tail = (1 - checks.level("Posterior", level)) / 2
        low, high = f"{100 * tail:g}%", f"{100 * (1 - tail):g}%"
        labels: list[str] = []
        rows: list[dict[str, float]] = []
        levels = [tail, 0.5, 1 - tail]
        moments, quantiles = partial(weights.mean_and_sd, weights=self.weights), partial(self._quantiles, levels=levels)
        for name, draws in where_they_are(self.draws).items():
            mean, sd = self._there_or_here(name, on_device.mean_and_sd, moments)
            precision = self._precision[name]
            interval = self._there_or_here(name, partial(on_device.quantiles, levels=levels), quantiles)
            absent = ~np.isnan(self._tails[name])
            mean, sd, mcse = (np.where(absent, np.nan, one) for one in (mean, sd, precision["mcse"]))
            spread = {"mean": mean, "sd": sd, low: interval[0], high: interval[2]}
            precision = precision | {"mcse": mcse}
            spread |= {key: precision[key] for key in ("ess", "mcse", "ess_tail", "r_hat") if key in precision}
            if self.heavy_tails:
                spread["median"] = interval[1]
            labels += labels_of(name, draws.shape[1:], self.axes)
            for index in np.ndindex(draws.shape[1:]):
                rows.append({column: float(numbers[index]) for column, numbers in spread.items()})
        return SummaryTable(rows, index=labels)

    def interval(
        self, level: float = 0.95, kind: str = "equal-tailed", *, simultaneous: bool = False
    ) -> dict[str, tuple[Any, Any]]:
        """Credible intervals by name, weights taken into account.

        "equal-tailed": as much below as above. "hdi": the shortest that holds `level` of the draws. `simultaneous`: for
        a vector, equal-tailed intervals that hold all of its entries at once for `level` of the draws, by ranks (Besag
        et al. 1995).
        """
        level = checks.level("Posterior", level)
        checks.choice("Posterior.interval", "kind", kind, ["equal-tailed", "hdi"])
        if simultaneous and kind == "hdi":
            advice = 'Leave kind out: simultaneous intervals are "equal-tailed".'
            raise refusal("Posterior.interval", "kind", "must be 'equal-tailed' where simultaneous", kind, advice)
        method = intervals.joint if simultaneous else intervals.shortest if kind == "hdi" else intervals.central
        here = partial(method, weights=self.weights, level=level)
        there = partial(on_device.shortest if kind == "hdi" else on_device.central, level=level)
        ends = {}
        for name, draws in where_they_are(self.draws).items():
            nothing = np.full(draws.shape[1:], np.nan)
            if not self._usable:
                pair = nothing, nothing
            elif simultaneous:  # by ranks of whole draws
                pair = here(np.asarray(self.draws[name], float))
            else:
                pair = self._there_or_here(name, there, here)
            ends[name] = (pair[0][()], pair[1][()])
        return ends

    def decide(self, **bounds: Any) -> Any:
        """A pandas table of chances: `posterior.decide(theta=0.5, gap=(-0.02, 0.02))`.

        For a number, the chances to lie below and above it; for a pair, also inside (both ends included), a region of
        practical equivalence. Each with its Monte Carlo error; where all draws agree, one over their effective number.
        """
        return decisions.decision_table(self, bounds)

    # Criticism ---------------------------------------------------------------------------------------

    def replicate(self, model: Any = None, release: Any = None, *, seed: int) -> replicates.Replicates:
        """A new release for each draw of the parameters: `.draws`, and `.p_values()`, where the published one lies.

        Everything but the parameters is drawn again: statistics from the model, then noise. A posterior that was read
        from a file needs the `model` and the `release` that its draws come from.
        """
        seed = checks.integer("Posterior.replicate", "seed", seed, least=0, advice="Give a whole number from 0 on.")
        problem = self._checked("Posterior.replicate", model, release)
        return replicates.replicated(self, problem, seed)

    def prior_sensitivity(self, model: Any = None, release: Any = None) -> Any:
        """A pandas table: how far parameters and derived quantities move with the weight of prior and likelihood.

        Power-scaling (Kallioinen et al. 2024): change of the law per doubling of the prior's, and of the likelihood's,
        power; from 0.05 on it counts. Draws are weighed again, nothing is sampled. The prior is that of parameters that
        depend on no others; the likelihood is that of the release, statistics integrated out, NaN where that has no
        formula. Model and release as for `replicate`.
        """
        problem = self._checked("Posterior.prior_sensitivity", model, release)
        return power_scaling.sensitivity_table(self, problem)

    def _checked(self, who: str, model: Any, release: Any) -> Problem:
        if not self._usable:
            raise refusal(who, "posterior", "must hold draws with weights", len(self), self.message or "Draw first.")
        return self.problem_of(who, model, release)

    @property
    def _usable(self) -> bool:
        return len(self) > 0 and (self.weights is None or not np.isnan(self.weights).any())

    def _quantiles(self, values: Array, levels: list[float]) -> Array:
        if not self._usable:
            return np.full((len(levels), *values.shape[1:]), np.nan)
        return weights.quantiles(values, self.weights, levels)

    def expect(self, function: Callable[..., Any]) -> Any:
        """Posterior mean of a function of draws by name, weights taken into account.

        `posterior.expect(lambda count: count <= 30)` is a probability. The function's argument names are looked up
        among the draws, and it is called once with whole arrays, the draw as first axis.
        """
        names = dependencies("Posterior.expect", function)
        values = np.asarray(function(**{name: self[name] for name in names}), dtype=float)
        if values.shape[:1] != (len(self),):
            rule = "must return one value per draw"
            raise refusal("Posterior.expect", "function", rule, values.shape, "Work along the first axis.")
        return weights.mean_and_sd(values, self.weights)[0][()]

    def select(self, name: str, **labels: Any) -> Array:
        """Draws of the entries with these labels: `posterior.select("rate", county="Bronx")`.

        A list of labels keeps its axis: `county=["Bronx", "Kings"]`. The first axis is the draw.
        """
        return self.axes.taken("Posterior.select", name, self[name], 1, labels)

    def to_pandas(self) -> Any:
        """One row per draw, one column per scalar; a column `log_weight` where draws are weighted."""
        import pandas as pd

        columns: dict[str, Array] = {}
        for name, values in self.draws.items():
            for index in np.ndindex(values.shape[1:]):
                columns[label_of(name, index, self.axes)] = values[(slice(None), *index)]
        if self.log_weights is not None:
            columns["log_weight"] = self.log_weights
        return pd.DataFrame(columns)

    def to_arviz(
        self,
        model: Any = None,
        release: Any = None,
        *,
        log_likelihood: bool = False,
        prior: bool = False,
        posterior_predictive: bool = False,
    ) -> Any:
        """An xarray DataTree in ArviZ's layout, chain x draw.

        Weighted draws are first resampled to equal weight (systematically, reproducibly); the tree's attributes say so.
        Truth values are 1 and 0, which ArviZ can average. Every variable has its label as the attribute `long_name`
        and, where that is known, its unit as `units`.
        Where a further group is asked for, or model and release are given, there are also `log_likelihood` (of every
        released entry, its statistic integrated out: to leave one out is to leave out a release, not a person),
        `log_prior` and `sample_stats`; `prior` and `posterior_predictive` where asked for. Model and release as for
        `replicate`.
        """
        attributes = {"inference_library": "noisewise", "status": self.status}
        draws = {name: values * 1 if values.dtype.kind == "b" else values for name, values in self.draws.items()}
        if self.log_weights is not None:
            index = weights.systematic(generator(self.seed, Purpose.EQUAL_WEIGHTS), self.log_weights, len(self))
            draws = {name: values[index] for name, values in draws.items()}
            attributes["resampled"] = "systematic resampling by importance weight; draws repeat"
        tree = self._tree(draws, attributes, naming=self.naming)
        if model is not None or release is not None or log_likelihood or prior or posterior_predictive:
            problem = self.problem_of("Posterior.to_arviz", model, release)
            columns, notes = groups.of(problem, draws, self.seed, prior, posterior_predictive)
            for group, values in columns.items():
                naming = self.naming if group in ("prior", "posterior_predictive") else None
                tree[group] = self._tree(values, {}, naming=naming)["posterior"]
            tree.attrs.update(notes)
        return tree

    def problem_of(self, who: str, model: Any = None, release: Any = None) -> Problem:
        """Model and release together, those of the run if none are given; refused where the release is another."""
        if model is None and release is None:
            if self.problem is None:
                rule, advice = "must be given where a posterior was read from a file", "Give model and release too."
                raise refusal(who, "model", rule, None, advice)
            return self.problem
        problem = Problem(model, release)
        if problem.release.hash != self.release_hash:
            rule, advice = "must be the one that the draws come from", "Give the release that nw.sample was given."
            raise refusal(who, "release", rule, problem.release, advice)
        return problem

    def to_xarray(self) -> Any:
        """The draws as an xarray Dataset, chain x draw, with the names of axes and their labels; as in `to_arviz`."""
        return self.to_arviz()["posterior"].to_dataset()

    def _tree(self, draws: Mapping[str, Array], attributes: dict[str, Any], naming: Naming | None = None) -> Any:
        """Groups in ArviZ's layout as an xarray tree; variables are described where there is a `naming`."""
        import xarray as xr

        trees = {}
        for name, group in self._groups(draws, naming).items():
            variables = {key: (one.dims, one.values, one.attributes) for key, one in group.variables.items()}
            trees[name] = xr.Dataset(variables, group.labels)
        tree = xr.DataTree.from_dict(trees)
        tree.attrs.update(attributes)
        tree["posterior"].attrs.update(attributes)
        return tree

    def _groups(
        self, draws: Mapping[str, Array], naming: Naming | None = None, in_file: bool = False
    ) -> dict[str, netcdf.Group]:
        """Draws and released values in ArviZ's layout; in a file, weights too."""
        groups_of = self.chains or self.islands or 1

        def split(values: Array) -> Array:
            return values.reshape(groups_of, len(values) // groups_of, *values.shape[1:])

        def group(columns: Mapping[str, Any], lead: tuple[str, ...], naming: Naming | None) -> netcdf.Group:
            variables, labelled = {}, set[str]()
            for name, values in columns.items():
                array = np.asarray(values)
                shape = array.shape[len(lead) :]
                own = name in self.draws and shape == where_they_are(self.draws)[name].shape[1:]
                axes = self.axes.dims.get(name) if own else None
                labelled.update(axes or ())
                dims = (*lead, *(axes or [f"{name}_dim_{axis}" for axis in range(len(shape))]))
                about = {} if naming is None else dict(naming.attributes(str(name), in_file=in_file))
                variables[name] = netcdf.Variable(dims, array, about)
            labels = {axis: list(labels) for axis, labels in self.axes.coords.items() if axis in labelled}
            return netcdf.Group(variables, labels)

        places = {"chain": np.arange(groups_of), "draw": np.arange(len(self) // groups_of)}
        posterior = group({name: split(values) for name, values in draws.items()}, ("chain", "draw"), naming)
        posterior.labels.update(places)
        groups = {"posterior": posterior, "observed_data": group(self.released, (), naming)}
        if in_file and self.log_weights is not None:
            groups["sample_stats"] = group({"log_weights": split(self.log_weights)}, ("chain", "draw"), None)
        return groups

    # Files -------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write NetCDF that ArviZ, xarray and R can read; `Posterior.load` gives the same draws and metadata back."""
        metadata = {"noisewise": json.dumps(self._metadata())}
        with writable("Posterior.save", path):
            netcdf.write(path, self._groups(self.draws, self.naming, in_file=True), metadata)

    def _metadata(self) -> dict[str, Any]:
        metadata = {name: getattr(self, name) for name in PLAIN}
        metadata |= {"format": FORMAT, "version": VERSION, "sampler": self.sampler.to_dict()}
        metadata |= {"parameters": list(self.parameters), "order": list(self.draws)}
        if self.derived:
            metadata["derived"] = list(self.derived)
        if self.axes.dims:
            metadata["dims"] = {name: list(axes) for name, axes in self.axes.dims.items()}
        if self.naming != Naming():
            metadata["naming"] = {"labels": dict(self.naming.labels), "units": dict(self.naming.units)}
        return metadata | {"diagnostics": dict(self.diagnostics), "versions": dict(self.versions)}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the draws as CSV, one row each, as R's package posterior reads them; see docs/in-r.md."""
        with writable("Posterior.to_csv", path):
            draws_table(self).to_csv(Path(path), index=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. Only data is restored, never code."""
        import xarray as xr

        if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
            raise refusal("Posterior.load", "path", "must be an existing file", path, "Check the path.")
        try:
            result_file.check_structure(path)
            tree = xr.load_datatree(Path(path), engine="h5netcdf")
            metadata = json.loads(tree.attrs["noisewise"])
            if metadata.pop("format") != FORMAT or metadata.pop("version") != VERSION:
                raise KeyError("format")
            columns = {name: _joined(tree["posterior"][name].values) for name in metadata.pop("order")}
            released = {str(name): item.values[()] for name, item in tree["observed_data"].data_vars.items()}
            log_weights = (
                _joined(tree["sample_stats"]["log_weights"].values) if "sample_stats" in tree.children else None
            )
            metadata["sampler"] = Sampler.from_dict(metadata["sampler"])
            metadata["parameters"] = tuple(metadata["parameters"])
            metadata["derived"] = tuple(metadata.get("derived", ()))
            stated = metadata.pop("naming", {"labels": {}, "units": {}})
            metadata["naming"] = Naming.checked("Posterior.load", **stated, known={*columns, *released})
            result_file.check_content(columns, released, log_weights, metadata)
            metadata["axes"] = _axes(metadata.pop("dims", {}), tree["posterior"], columns)
            return cls(draws=columns, released=released, log_weights=log_weights, **metadata)
        except UNREADABLE as error:
            cause = f"not a posterior written by this version of noisewise ({type(error).__name__}: {error})"
            advice = "Give a file made with Posterior.save, version 1."
            raise InputError(f"{cause}. {advice}", who=str(path), advice=advice) from error

    # Display -----------------------------------------------------------------------------------------

    def headline(self, seed: int | None = None) -> str:
        """How many draws, by what, and how it went, in one line.

        `seed` is the one that was given, where the sampler was a fallback, which has one of its own.
        """
        parts = [
            f"{len(self):,} draws by {type(self.sampler).__name__}",
            f"seed {self.seed if seed is None else seed}",
            f"status {self.status}",
        ]
        if self.chains is not None:
            parts.insert(1, f"{self.chains} chains")
        if self.log_weights is not None:
            parts.insert(1, f"effective {next(iter(self.ess.values()), 0):,.0f}")
        if self.acceptance_rate is not None and np.isfinite(self.acceptance_rate):
            parts.append(f"acceptance {self.acceptance_rate:.3g}")
        if self.log_evidence is not None and np.isfinite(self.log_evidence):
            error = "" if self.log_evidence_se is None else f" ± {self.log_evidence_se:.2g}"
            parts.append(f"log evidence {self.log_evidence:.4g}{error}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        body = f"\n{self.summary().to_string(float_format=lambda x: f'{x:.4g}')}" if len(self) else ""
        note = f"\n{self.without_moments}" if self.without_moments else ""
        return f"Posterior: {self.headline()}{body}{note}"

    def _repr_html_(self) -> str:
        table = self.summary().to_html(float_format=for_people) if len(self) else ""
        said = [text for text in (self.message, self.without_moments) if text]
        message = "".join(f"<p>{escape(text)}</p>" for text in said)
        return f"<div><p><strong>Posterior</strong>: {escape(self.headline())}</p>{message}{table}</div>"


def _axes(dims: Any, group: Any, columns: Mapping[str, Array]) -> Axes:
    """Axes as a file names and labels them."""
    shapes = {name: column.shape[1:] for name, column in columns.items()}
    named = {axis for axes in dims.values() for axis in axes}
    coords = {axis: group.coords[axis].values.tolist() for axis in named if axis in group.coords}
    return Axes.of("Posterior.load", dims, coords, shapes)


def _joined(values: Array) -> Array:
    """Chains one after the other."""
    return values.reshape(-1, *values.shape[2:])


def _worst(sizes: Array) -> float:
    """The least of the sizes that are defined: a scalar that never varies has none."""
    defined = sizes[~np.isnan(sizes)]
    return float(defined.min()) if defined.size else float("nan")
