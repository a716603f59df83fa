"""Model and release together: the checks and the one number, log eta(s_dp | s), that all samplers share."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.axes import Axes
from noisewise.errors import Place, WrongMechanism, refusal
from noisewise.inference.measured import Measured, measurements, with_measurements
from noisewise.mechanisms import Exact, Mechanism, Within
from noisewise.mechanisms.linear import Linear, Matrix
from noisewise.model import Model
from noisewise.model.atoms import atoms_move
from noisewise.model.derived import axes_of
from noisewise.numerics import Array
from noisewise.release import Release

FEW_ENTRIES = 7
"""Entries up to which NumPy adds a row from left to right: so are columns, to the same bits, several times as fast."""


@dataclass(frozen=True)
class Problem:
    """A model with the release it is to explain; refused at construction where they do not fit."""

    model: Model
    release: Release
    axes: Axes = field(init=False, compare=False, repr=False)
    """Names of the axes of parameters and statistics, and the labels along them."""
    measured: Mapping[str, Measured] = field(init=False, compare=False, repr=False)
    """By name, released values that measure another statistic: the model gets each as a function of that statistic."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise refusal("sample", "model", "must be a noisewise Model", self.model, "Build it with nw.Model.")
        if not isinstance(self.release, Release):
            raise refusal("sample", "release", "must be a noisewise Release", self.release, "Build it with nw.Release.")
        object.__setattr__(self, "measured", measurements(self.model, self.release))
        object.__setattr__(self, "model", with_measurements(self.model, self.measured))
        for name in self.release:
            self._check_statistic(name)
        self._check_possible()
        object.__setattr__(self, "axes", self._axes())
        for name in self.model.statistics:
            if name not in self.needed and name not in self.model.added:
                advice = "Release it, or remove it from the model."
                rule = "must be released, or needed by a statistic that is"
                raise refusal("sample", name, rule, sorted(self.release), advice)

    def _check_statistic(self, name: str) -> None:
        model, item = self.model, self.release[name]
        if name in model.derived:
            advice = "Rename one of the two."
            raise refusal("sample", "release", "must not have the name of a derived quantity", name, advice)
        if name not in model.statistics:
            advice = checks.nearest(name, model.statistics)
            raise refusal("sample", "release", "must name statistics of the model", name, advice)
        for other in item.mechanism.inputs:
            if other not in model.order:
                advice = checks.nearest(other, model.order)
                raise refusal("sample", Place.of("release", name), "reads a value the model must have", other, advice)
        misfit = item.mechanism.misfit(item.shape, model.shape(name))
        if misfit is not None:
            shape = f"shape {model.shape(name)}"
            raise refusal("sample", name, misfit, shape, "Check the model or the release.")
        beyond = item.mechanism.beyond(item.value, model.shape(name))
        if beyond is not None:
            raise refusal("sample", Place.of("release", name), beyond, item.value, "Check the model or the release.")
        parts = getattr(item.mechanism, "parts", ())
        if any(isinstance(part, Exact) for part in parts) and not model.is_discrete(name):
            rule = "has entries without noise, which a continuous statistic never meets"
            advice = "Make them a statistic of their own, released with nw.Exact()."
            raise refusal("sample", Place.of("release", name), rule, item.mechanism, advice)
        if item.mechanism.integers and not model.is_discrete(name):
            rule = f"has integer noise ({type(item.mechanism).__name__}), so the model must make it a whole number"
            advice = "Use a discrete law such as dist.Poisson, or the continuous mechanism."
            raise refusal("sample", Place.of("release", name), rule, "a continuous statistic", advice)

    def _axes(self) -> Axes:
        """The axes that the model names, with the labels of the release."""
        model = self.model
        dims, coords = dict(model.axes.dims), dict(model.axes.coords)
        dims |= {name: measured.dims for name, measured in self.measured.items() if measured.dims}
        for name, item in self.release.items():
            if not item.coords or item.shape != model.shape(name):
                continue  # not labelled, or of another kind than the confidential statistic
            if dims.setdefault(name, tuple(item.coords)) != tuple(item.coords):
                rule = "must name the axes of the release, " + repr(tuple(item.coords))
                raise refusal("sample", Place.of("dims", name), rule, dims[name], "Check the model or the release.")
            for axis, labels in item.coords.items():
                known = coords.setdefault(axis, labels)
                if known != labels:
                    odd = next((b for a, b in zip(known, labels, strict=False) if a != b), f"{len(labels)} labels")
                    rule = f"must have the labels along '{axis}' that others have, in the same order"
                    advice = f"Give its axis another name: release['{name}'].with_coords(...)."
                    raise refusal("sample", Place.of("release", name), rule, odd, advice)
        return axes_of("sample", model.derived_from, model.shapes, Axes(dims, coords), {})

    def _check_possible(self) -> None:
        """Refuse a model whose simulated values break a rule that a mechanism sets for them, beyond their shape."""
        mechanisms = {name: item.mechanism for name, item in self.release.items()}
        asking = {n: m for n, m in mechanisms.items() if type(m).impossible is not Mechanism.impossible}
        if asking:
            simulated = self.model.simulate(64, 0)
            for name, mechanism in asking.items():
                rule = mechanism.impossible(simulated[name])
                if rule is not None:
                    advice = "Give the statistic a law that obeys it by construction."
                    raise refusal("sample", name, rule, simulated[name][0].tolist(), advice)

    @property
    def needed(self) -> set[str]:
        """Released statistics, and everything that they or their mechanisms depend on."""
        direct = set(self.release) | {other for item in self.release.values() for other in item.mechanism.inputs}
        return direct | set(self.model.ancestors(*direct))

    @cached_property
    def parts(self) -> list[list[str]]:
        """Groups of statistics that no edge and no mechanism links: given the parameters, they are independent."""
        statistics = [name for name in self.model.order if name in self.model.statistics]
        parts: list[set[str]] = [{name} for name in statistics]
        links = [{name, *self.model.parents(name)} for name in statistics]
        links += [{name, *item.mechanism.inputs} for name, item in self.release.items()]
        for link in links:
            touched = [part for part in parts if part & link]
            parts = [part for part in parts if not part & link] + [set().union(*touched)]
        return [[name for name in statistics if name in part] for part in parts]

    def roots_of(self, name: str) -> set[str]:
        """Everything a released statistic and its mechanism depend on, itself and latent inputs included."""
        direct = {name, *self.release[name].mechanism.inputs}
        return direct | set(self.model.ancestors(*direct))

    def measurements_of(self, name: str) -> dict[str, tuple[Matrix, Mechanism, Any]]:
        """All measurements of a statistic, one under its own name among them: matrix, mechanism and released value."""
        own = {
            other: (measured.matrix, self.release[other].mechanism, self.release[other].value)
            for other, measured in self.measured.items()
            if measured.statistic == name
        }
        if name in self.release:
            whole = Linear.of("sample", name).matrix_for("sample", self.model.shape(name), ())[0]
            own[name] = (whole, self.release[name].mechanism, self.release[name].value)
        return own

    def log_eta(self, name: str, values: dict[str, Array]) -> Array:
        """log density of the released value given each row of the confidential ones."""
        item = self.release[name]
        extra = {other: values[other] for other in item.mechanism.inputs}
        with np.errstate(over="ignore", under="ignore"):
            log_prob = np.asarray(item.mechanism.log_prob(item.value, values[name], **extra))
        entries = log_prob.reshape(len(values[name]), -1)
        if not 1 <= entries.shape[1] <= FEW_ENTRIES:
            return entries.sum(axis=1)
        by_row: Array = functools.reduce(np.add, entries.T)
        return by_row

    def log_eta_of_all(self, values: dict[str, Array]) -> Array:
        """log density of the whole release given each row of the confidential values."""
        return np.sum([self.log_eta(name, values) for name in self.release], axis=0)

    def log_sup(self, name: str) -> float:
        """Certified bound of `log_eta` over the confidential values; computed once."""
        if name not in self._log_sups:
            item = self.release[name]
            self._log_sups[name] = float(np.sum(item.mechanism.log_sup(item.value)))
        return self._log_sups[name]

    @property
    def log_sup_of_all(self) -> float:
        """Certified bound of the whole release's log density."""
        return sum(self.log_sup(name) for name in self.release)

    @cached_property
    def _log_sups(self) -> dict[str, float]:
        return {}

    def log_ratio(self, names: list[str], values: dict[str, Array]) -> Array:
        """log of the acceptance probability, prod eta / sup; a ratio above one is an error, never clipped."""
        total: Any = None
        for name in names:
            ratio = self.log_eta(name, values) - self.log_sup(name)
            worst = float(ratio.max())
            if not worst <= 1e-9:  # also catches NaN
                raise WrongMechanism.exceeding(self.release[name].mechanism, name, worst)
            total = ratio if total is None else total + ratio
        return total

    def without_measure(self) -> str | None:
        """Why no density conditions on the release, or None: a statistic without noise has a law whose atom moves."""
        for name, item in self.release.items():
            exact = isinstance(item.mechanism, Exact) and self.model.has_density(name)
            if exact and atoms_move(self.model.law(name)):
                return f"needs a density of '{name}', whose law has an atom that moves with what it depends on"
        return None

    def measured_tables(self) -> str | None:
        """Why statistics cannot be summed out, or None: one of whole numbers is measured under another name."""
        for name, measured in self.measured.items():
            if self.model.is_discrete(name):
                return f"cannot sum out '{measured.statistic}', of which '{name}' is a measurement"
        return None

    def in_two_parts(self) -> str | None:
        """Why a walk may not reach everything, or None: a continuous value lies outside a range, on either side."""
        for name, item in self.release.items():
            if isinstance(item.mechanism, Within) and not self.model.is_discrete(name):
                low, high = item.mechanism.ends(item.value)
                if np.any(np.isinf(low) & np.isinf(high)):
                    return f"may not get from one side of the range that '{name}' lies outside of to the other"
        return None

    def never_accepted(self) -> str | None:
        """Why no simulated row could be accepted, as the end of a sentence, or None: a noise density is unbounded."""
        for name, item in self.release.items():
            if isinstance(item.mechanism, Exact) and not self.model.is_discrete(name):
                return f"would never accept: '{name}' is continuous and has no noise"
        return None
