"""The table of mechanisms: one `Case` says how to check a mechanism, and every generic test runs over all cases.

Cases live in `families/`, one file per family: a list `CASES`, a list `TARGETS` of problems with exact answers,
`audits`, which tells the budgets to look at, and `MUTANTS`, mistakes that the tests must catch.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from exactness import agrees, counts_agree
from scipy import stats
from scipy.special import roots_legendre


@dataclass(frozen=True)
class Case:
    """How to check one mechanism at one confidential value.

    Give exactly one description of what can be released: `points` (all released values of any weight, first axis),
    `pieces` (intervals that cover all but 1e-12 of a scalar density, smooth inside; with `atoms`, points of positive
    probability), or `nearby` (a mechanism of the same family whose density ratio to this one is bounded, for vectors).
    """

    name: str
    mechanism: Any
    confidential: Any
    search: Callable[[np.random.Generator, int], Any]
    """Many confidential values, rows first, over which the supremum must hold (extremes included)."""
    attains: Callable[[Any], Any] | None = None
    """For a released value, the confidential value where the supremum is attained (or nearly, if approached)."""
    points: Any = None
    pieces: tuple[tuple[float, float], ...] = ()
    atoms: tuple[Any, ...] = ()
    nearby: Any = None
    wrong: Any = None
    """A mechanism a little off: its draws must fail the check against this one's density."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Values of further confidential inputs."""
    at_supremum: dict[str, Any] | None = None
    """Values of those inputs where the supremum is attained, if other than `inputs`."""
    draws: int = 200_000

    def density(self, released):
        """exp(log_prob) for many released values, rows first."""
        return np.exp(self.log_prob(released))

    def log_prob(self, released):
        found = np.asarray(self.mechanism.log_prob(released, self.confidential, **self.inputs))
        return found.reshape(len(released), -1).sum(axis=1)

    def sample(self, mechanism, rng, size):
        rows = np.broadcast_to(self.confidential, (size, *np.shape(self.confidential)))
        inputs = {name: np.broadcast_to(value, (size, *np.shape(value))) for name, value in self.inputs.items()}
        return mechanism.sample(rng, rows, **inputs)

    # What the density says --------------------------------------------------------------------------------------

    def cells(self):
        """Edges and probabilities of at least 40 cells over the pieces, by Gauss-Legendre quadrature."""
        per_piece = max(2, -(-40 // len(self.pieces)))
        nodes, weights = roots_legendre(24)
        edges, masses = [], []
        for low, high in self.pieces:
            cuts = np.linspace(low, high, per_piece + 1)
            half = np.diff(cuts)[:, None] / 2
            values = self.density((cuts[:-1, None] + half * (1 + nodes)).ravel()).reshape(per_piece, -1)
            edges.append(np.column_stack([cuts[:-1], cuts[1:]]))
            masses.append((values * weights * half).sum(axis=1))
        return np.concatenate(edges), np.concatenate(masses)

    def mass(self):
        """Total probability under the density."""
        if self.points is not None:
            return self.density(np.asarray(self.points)).sum()
        total = self.cells()[1].sum()
        return total + (self.density(np.asarray(self.atoms)).sum() if self.atoms else 0.0)

    def mass_ratios(self, rng, size=100_000):
        """Density over that of an independent Student proposal about the draws' mean, on the space that they span."""
        pilot = np.asarray(self.sample(self.mechanism, rng, 4_000)).reshape(4_000, -1)
        centre, spread = pilot.mean(axis=0), np.cov(pilot.T).reshape(pilot.shape[1], -1)
        values, vectors = np.linalg.eigh(spread)
        basis = vectors[:, values > 1e-10 * values.max()]  # invariants leave fewer dimensions than entries
        law = stats.multivariate_t(shape=basis.T @ spread @ basis, df=4)
        steps = np.asarray(law.rvs(size, random_state=rng)).reshape(size, -1)
        points = (centre + steps @ basis.T).reshape(size, *np.shape(self.sample(self.mechanism, rng, 1))[1:])
        return np.exp(self.log_prob(points) - law.logpdf(steps))

    def follows(self, mechanism, rng):
        """Whether draws of `mechanism` follow this case's density."""
        drawn = np.asarray(self.sample(mechanism, rng, self.draws))
        if self.nearby is not None:
            other = np.asarray(self.nearby.log_prob(drawn, self.confidential, **self.inputs)).reshape(len(drawn), -1)
            return agrees(np.exp(other.sum(axis=1) - self.log_prob(drawn)), 1.0)
        if self.points is not None:
            points = np.asarray(self.points)
            keys = {np.asarray(point).tobytes(): index for index, point in enumerate(points.astype(float))}
            flat, counts = different(drawn.reshape(len(drawn), -1).astype(float))
            observed = np.zeros(len(points) + 1)
            for row, count in zip(flat, counts, strict=True):
                observed[keys.get(row.reshape(points.shape[1:]).tobytes(), len(points))] += count
            probabilities = self.density(points)
            return counts_agree(observed, np.append(probabilities, max(1 - probabilities.sum(), 0.0)))
        is_atom = np.zeros(len(drawn), dtype=bool)
        observed, probabilities = [], []
        for atom in self.atoms:
            hit = np.isnan(drawn) if np.isnan(atom) else drawn == atom
            is_atom |= hit
            observed.append(hit.sum())
            probabilities.append(self.density(np.asarray([atom]))[0])
        edges, masses = self.cells()
        rest = np.sort(drawn[~is_atom])
        observed += list(np.searchsorted(rest, edges[:, 1]) - np.searchsorted(rest, edges[:, 0]))
        probabilities += list(masses)
        observed.append(len(drawn) - sum(observed))
        probabilities.append(max(1 - sum(probabilities), 0.0))
        return counts_agree(observed, probabilities)


def different(rows):
    """The rows that differ, and how often each is there; column by column, which sorts faster than whole rows."""
    codes = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        values, places = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + places, return_inverse=True)[1]
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return rows[first], counts


def families():
    """The modules of `families/`."""
    names = sorted(path.stem for path in (Path(__file__).parent / "families").glob("[!_]*.py"))
    return [importlib.import_module(f"families.{name}") for name in names]


def all_cases():
    """Every case of every family."""
    return [case for family in families() for case in family.CASES]
