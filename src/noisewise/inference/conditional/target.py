"""The density of parameters and continuous statistics together with the release, discrete statistics summed out.

In free coordinates, traceable, with gradients that are numbers everywhere. Derivation: docs/derivations/nuts.md.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to

from noisewise.inference.conditional import normal_mixture
from noisewise.inference.conditional.integrals import Integral
from noisewise.inference.conditional.laws import sketch_of
from noisewise.inference.conditional.measured_normal import MeasuredNormal
from noisewise.inference.conditional.normal import Folded, is_closed
from noisewise.inference.conditional.sums import Sum, log_eta
from noisewise.inference.conditional.trees import Tree
from noisewise.inference.problem import Problem
from noisewise.mechanisms import Exact
from noisewise.model.atoms import has_atoms
from noisewise.model.coordinates import AS_THEY_ARE, Centring, Chart, Space, location_and_scale, unwalkable
from noisewise.model.law import log_density
from noisewise.model.wrappers import laws_within
from noisewise.numerics import Array, Values

MOST_VALUES = 2**24
"""Values of one entry beyond which no tree of sums is tried: a prior that reaches so far bounds nothing."""
MANY_TERMS = 2**15
"""Terms of sums from which on a draw of the statistics takes several times as long as their likelihood."""


def unfit(problem: Problem) -> str | None:
    """Why no density of continuous unknowns can be had, or None; found out once for a model and a release."""
    known: dict[Any, Any] = problem.model.compiled
    key = ("target", "unfit", problem.release.hash)
    if key not in known:
        known[key] = _unfit(problem)
    against: str | None = known[key]
    return against


def _unfit(problem: Problem) -> str | None:
    model = problem.model
    latent = [name for name in model.statistics if name in problem.needed and name not in problem.measured]
    exact = {name for name, item in problem.release.items() if isinstance(item.mechanism, Exact)}
    summed = {name for name in latent if name not in exact and model.is_discrete(name)}
    for name in model.parameters:
        if model.is_discrete(name):
            return f"moves along gradients, and the parameter '{name}' is a whole number"
    for name in latent:
        if not model.has_density(name):
            return f"needs the density of '{name}', which is a Total or Simulator"
    sampled = [name for name in latent if name not in exact and name not in summed]
    for name in [*model.parameters, *sampled]:
        reason = _no_chart(problem, name)
        if reason is not None:
            return f"cannot sample '{name}': {reason}"
    objection = problem.measured_tables() or problem.without_measure() or problem.in_two_parts()
    objection = objection or unwalkable(model, sampled)
    if objection is not None:
        return objection
    for name in latent:
        read = sorted(summed & set(model.parents(name)))
        if read and not model.is_discrete(name):
            return f"cannot sum out '{read[0]}', on which the continuous '{name}' depends"
    if not model.parameters and summed | exact == set(latent):
        return "has nothing to sample: the model has no continuous unknown"
    return Target(problem, {}).excess()


def _no_chart(problem: Problem, name: str) -> str | None:
    """Why a continuous law has no density in unconstrained coordinates, or None."""

    def look(law: Distribution) -> str | None:
        singular = has_atoms(law) or any("Censored" in type(part).__name__ for part in laws_within(law))
        try:
            biject_to(law.support).inverse_shape(problem.model.shape(name))
        except (NotImplementedError, TypeError):
            return f"the support of {type(law).__name__} has no unconstrained coordinates"
        return "its law has atoms" if singular else None

    reason: str | None = sketch_of(problem.model, name, look)
    return reason


class Target:
    """The density that the chains explore: of the free coordinates of parameters and sampled statistics."""

    def __init__(
        self,
        problem: Problem,
        widened: Mapping[tuple[str, ...], int],
        *,
        integrate: bool = False,
        by_ratios: bool = False,
    ) -> None:
        """With `integrate`, continuous statistics are integrated out by quadrature where that can be done.

        `widened` says how often the windows of which sums are doubled. `by_ratios` is for chains, which stay where the
        release is likely: see `Sum`.
        """
        self.problem, self.model, self.space = problem, problem.model, Space(problem.model)
        release = problem.release
        wanted = problem.needed - set(problem.measured)
        latent = [name for name in self.model.order if name in self.model.statistics and name in wanted]
        self.exact = tuple(name for name in latent if name in release and isinstance(release[name].mechanism, Exact))
        hidden = [name for name in latent if name not in self.exact]
        discrete = [name for name in hidden if self.model.is_discrete(name)]
        self.folded = tuple(Folded(self.space, name) for name in hidden if self._folds(name))
        tables = {measured.statistic for measured in problem.measured.values()}
        closed = [name for name in hidden if name in tables and MeasuredNormal.applies(problem, name)]
        self.closed = tuple(MeasuredNormal(problem, name) for name in closed)
        sums = [self._sum(names, widened.get(names, 0), by_ratios) for names in self._groups(discrete)]
        apart = [sum_.names[0] for sum_ in sums if sum_.by_entry and sum_.excess()]
        if integrate:
            apart += [name for name in hidden if name not in discrete and not self._folds(name)]
        else:
            apart += [name for name in hidden if name not in discrete and self._mixes(name)]
        integrals = [
            Integral.of(problem, self.space, name, widened.get((name,), 0)) for name in apart if self._alone(name)
        ]
        self.integrals = tuple(integral for integral in integrals if integral is not None)
        self.sums = tuple(sum_ for sum_ in sums if sum_.names not in [integral.names for integral in self.integrals])
        self.trees = tuple(sum_ for sum_ in self.sums if isinstance(sum_, Tree))
        aside = {*discrete, *closed, *(fold.name for fold in self.folded), *(one.name for one in self.integrals)}
        self.sampled = tuple(name for name in hidden if name not in aside)
        self.chart = Chart(self.model, self.sampled)
        self.size = self.space.size + self.chart.size
        self.located = self.space.chart.located + self.chart.located
        """Names of the unknowns that a `centring` can be given for."""

    def _sum(self, names: tuple[str, ...], widened: int, by_ratios: bool) -> Sum | Tree:
        """The sum over all values of these together; by a tree, where there are too many and they make one."""
        sum_ = Sum(self.problem, names, widened, by_ratios=by_ratios)
        if sum_.by_entry or not sum_.excess() or any(window.size > MOST_VALUES for window in sum_.windows.values()):
            return sum_
        return Tree.of(self.problem, names, widened) or sum_

    def _folds(self, name: str) -> bool:
        """Whether a statistic is normal, has noise with a closed form, and nothing else reads it."""
        if self.model.is_discrete(name) or not self._alone(name):
            return False
        return is_closed(self.problem.release[name].mechanism) and self.model.law(name).form.kind == "Normal"

    def _mixes(self, name: str) -> bool:
        """Whether it is a mixture of normal laws with a closed form, and nothing else reads it."""
        if self.model.law(name).form.kind != "MixtureSameFamily" or not self._alone(name):
            return False
        mechanism = self.problem.release[name].mechanism
        mixes: bool = sketch_of(self.model, name, lambda law: normal_mixture.applies(law, mechanism))
        return mixes

    def _alone(self, name: str) -> bool:
        """Whether a statistic is released, and nothing else reads it."""
        model, release = self.model, self.problem.release
        inputs = [item.mechanism.inputs for item in release.values()]
        read = any(name in model.parents(child) for child in model.statistics) or any(name in names for names in inputs)
        return name in release and not read

    def _groups(self, discrete: list[str]) -> list[tuple[str, ...]]:
        """Discrete statistics that must be summed together: one depends on the other, or something reads both."""
        links = [{name, *self.model.parents(name)} for name in (*discrete, *self.exact)]
        links += [{name, *item.mechanism.inputs} for name, item in self.problem.release.items()]
        groups = [{name} for name in discrete]
        for link in links:
            touched = [group for group in groups if group & link]
            groups = [group for group in groups if not group & link] + ([set().union(*touched)] if touched else [])
        return [tuple(name for name in discrete if name in group) for group in groups]

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a compiled program depends on, besides the shapes of its arguments."""
        folded = *(fold.name for fold in self.folded), *(closed.name for closed in self.closed)
        integrals = tuple((integral.name, integral.by) for integral in self.integrals)
        return self.exact, self.sampled, folded, integrals, tuple(sum_.signature for sum_ in self.sums)

    @property
    def cells(self) -> int:
        """Values summed over for one row, nodes of integrals, and scalars in closed form."""
        folded = sum(int(np.prod(self.model.shape(fold.name))) for fold in self.folded)
        summed = sum(sum_.points * sum_.entries for sum_ in self.sums)
        closed = sum(closed.cells for closed in self.closed)
        return summed + sum(integral.cells for integral in self.integrals) + closed + 4 * folded

    @property
    def work(self) -> int:
        """Numbers handled for one value of the density: `cells`, less what sums over one law for all entries save."""
        return self.cells + sum(sum_.work - sum_.points * sum_.entries for sum_ in self.sums)

    @property
    def windows(self) -> dict[tuple[str, ...], int]:
        """Values in each sum, by the names summed over, in the order of the shares that `completed` gives."""
        windows = {sum_.names: sum_.points for sum_ in self.sums}
        return windows | {integral.names: integral.by.size for integral in self.integrals}

    def too_narrow(self, void: Array, limit: float) -> list[tuple[str, ...]]:
        """Names of the sums of which too much may be void, where the shares of all together are above `limit`."""
        bounded = [*(True for _ in self.sums), *(integral.bounded for integral in self.integrals)]
        if not any(bounded) or void[bounded].sum() <= limit:
            return []
        parts = zip(self.windows, bounded, void, strict=True)
        return [names for names, is_bounded, left in parts if is_bounded and left > limit / sum(bounded)]

    def excess(self) -> str | None:
        """Why there are too many values to sum over, or None."""
        reasons = [sum_.excess() for sum_ in self.sums] + [integral.excess() for integral in self.integrals]
        return next(filter(None, reasons), None)

    @property
    def uniforms(self) -> list[int]:
        """How many uniform numbers each sum and each integral is drawn by."""
        return [sum_.entries for sum_ in self.sums] + [integral.entries for integral in self.integrals]

    def data(self) -> dict[str, Any]:
        """The release, as arguments of compiled programs: another release needs no other program."""
        release = self.problem.release
        read = [*self.sampled, *(fold.name for fold in self.folded), *(integral.name for integral in self.integrals)]
        read += [name for sum_ in self.sums if not sum_.fixed_noise for name in sum_.read_by]
        read += [name for name, measured in self.problem.measured.items() if measured.statistic in self.sampled]
        return {
            "exact": {name: np.asarray(release[name].value) for name in self.exact},
            "items": {name: (release[name].mechanism, release[name].value) for name in read if name in release},
            "tables": [sum_.tables() for sum_ in self.sums],
            "measured": [closed.released() for closed in self.closed],
            "centring": {},
        }

    # Traceable -------------------------------------------------------------------------------------------

    def point(self, free: Any, data: Any) -> tuple[dict[str, Any], Any]:
        """Values by name at one free vector, and the log density of all that is sampled with the release."""
        values, total = self._without_release(free, data)
        total = self._with_release(total, values, data)
        return values, jnp.where(total < jnp.inf, total, -jnp.inf)  # NaN, or a formula beyond its range

    def values(self, free: Any, data: Any) -> dict[str, Any]:
        """Values by name at one free vector."""
        return self._without_release(free, data)[0]

    def _without_release(self, free: Any, data: Any) -> tuple[dict[str, Any], Any]:
        """Values by name at one free vector, and the log density of all that is sampled."""
        prior, total = self.space.point(free[: self.space.size], {}, data["centring"])
        values: dict[str, Any] = {**prior, **data["exact"]}
        for placed in self.chart.walk(free[self.space.size :], values, data["centring"]):
            total = sum(placed.log_density, total)
        return values, total

    def log_likelihood(self, values: Values, data: Any) -> Any:
        """log density of the release given the parameters, where nothing else is sampled; traceable."""
        total = self._with_release(jnp.zeros(()), {**values, **data["exact"]}, data)
        return jnp.where(total < jnp.inf, total, -jnp.inf)

    @property
    def draws_as_it_weighs(self) -> bool:
        """Whether drawing the statistics with the likelihood costs hardly more than the likelihood alone."""
        return not self.integrals and all(sum_.by_powers or sum_.span for sum_ in self.sums)

    @property
    def weighs_apart(self) -> bool:
        """Whether a program that weighs and does not draw pays: it is not needed, or draws go through many terms."""
        return not self.draws_as_it_weighs or sum(sum_.points * sum_.entries for sum_ in self.sums) >= MANY_TERMS

    def _with_release(self, total: Any, values: Values, data: Any, bounds: Sequence[Any] | None = None) -> Any:
        """`total` plus the log density of the release given all that is sampled; `bounds`: the sums' part, if known."""
        summed = {child for sum_ in self.sums for child in sum_.children}
        for name in self.exact:
            if name not in summed:
                value = jnp.asarray(data["exact"][name], float)
                total = total + log_density(self.space.model.law_at(name, values), value)
        taken = {name for sum_ in self.sums for name in sum_.read_by}
        measured = {n: m for n, m in self.problem.measured.items() if m.statistic in self.sampled}
        values = {**values, **{name: one.of(values[one.statistic]) for name, one in measured.items()}}
        for name, item in data["items"].items():
            if (name in self.sampled or name in measured) and name not in taken:
                total = total + jnp.sum(log_eta(item, name, values))
        for closed, released in zip(self.closed, data["measured"], strict=True):
            total = total + closed.log_kept(values, released)
        for fold in self.folded:
            total = total + fold.log_kept(values, data["items"])
        for integral in self.integrals:
            total = total + integral.log_kept(values, data["items"])
        if bounds is None:
            sums = zip(self.sums, data["tables"], strict=True)
            bounds = [sum_.log_bound(values, data["items"], tables) for sum_, tables in sums]
        return sum(bounds, total)

    def potential(self, data: Any) -> Callable[[Any], Any]:
        """Minus the log density, as NumPyro wants it, with a gradient that is a number everywhere.

        Any fixed function in place of the gradient leaves the leapfrog step reversible and volume-preserving, so that
        zero where the derivative is not a number costs steps, not exactness.
        """

        @jax.custom_vjp
        def energy(free: Any) -> Any:
            return -self.point(free, data)[1]

        def forward(free: Any) -> Any:
            return self._energy_and_slope(free, data)

        energy.defvjp(forward, lambda gradient, cotangent: (cotangent * gradient,))
        return energy

    @cached_property
    def _energy_and_slope(self) -> Any:
        """Minus the log density and its gradient: traced once, however often a program asks for them."""

        def both(free: Any, data: Any) -> tuple[Any, Any]:
            value, gradient = jax.value_and_grad(lambda free: -self.point(free, data)[1])(free)
            return value, jnp.where(jnp.isfinite(gradient), gradient, 0.0)

        return jax.jit(both)

    def free_from(self, values: Values, centring: Centring = AS_THEY_ARE) -> Any:
        """The free vector of one row of values of all that is sampled."""
        return jnp.concatenate([self.space.chart.free(values, centring), self.chart.free(values, centring)])

    def standing(self, free: Any, data: Any) -> dict[str, tuple[Any, Any, Any]]:
        """By name of the `located`, every entry's own free coordinate, location and scale at one free vector."""
        values = self.values(free, data)
        laws = {name: self.model.law_at(name, values) for name in self.located}
        return {
            name: (biject_to(law.support).inv(values[name]), *location_and_scale(law)) for name, law in laws.items()
        }

    def finish(self, free: Any, data: Any, uniform: Any) -> tuple[dict[str, Any], Any, Any]:
        """`completed` at one free vector, without the likelihood."""
        return self.completed(self.values(free, data), data, uniform)[:3]

    def completed(self, values: Values, data: Any, uniform: Any) -> tuple[dict[str, Any], Any, Any, Any]:
        """A draw of what is summed out or integrated by quadrature, given the values of all that is sampled.

        Returns the values by name, the drawn ones included; the share of each sum that may be void and of each integral
        that may be missing; the moments, or parents, of statistics in closed form; and `log_likelihood`.
        """
        values = {**values, **data["exact"]}
        drawn, left, bounds = dict(values), [], []
        for index, sum_ in enumerate(self.sums):
            tables = data["tables"][index]
            summed, bound, void = sum_.conditional(values, data["items"], tables, uniform[index])
            drawn |= summed
            left.append(void)
            bounds.append(bound)
        for index, integral in enumerate(self.integrals, start=len(self.sums)):
            drawn[integral.name], missing = integral.completed(values, data["items"], uniform[index])
            left.append(missing)
        moments: dict[str, Any] = {fold.name: fold.moments(values) for fold in self.folded}
        moments |= {c.name: {parent: values[parent] for parent in self.model.parents(c.name)} for c in self.closed}
        total = self._with_release(jnp.zeros(()), values, data, bounds)
        log_likelihood = jnp.where(total < jnp.inf, total, -jnp.inf)
        return drawn, jnp.stack(left) if left else jnp.zeros(0), moments, log_likelihood

    def draw_folded(self, rng: np.random.Generator, moments: Mapping[str, Any], rows: int) -> dict[str, Array]:
        """Draws of the statistics in closed form, for rows of their moments, or parents."""
        release = self.problem.release
        folded = {
            fold.name: fold.draw(rng, (release[fold.name].mechanism, release[fold.name].value), moments[fold.name])
            for fold in self.folded
        }
        return folded | {closed.name: closed.drawn(rng, moments[closed.name], rows) for closed in self.closed}

    def measure(self, columns: dict[str, Array]) -> None:
        """Add to `columns` the measurements of the statistics there, row by row."""
        for name, measured in self.problem.measured.items():
            columns[name] = measured.of_rows(columns[measured.statistic])
