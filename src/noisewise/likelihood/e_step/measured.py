"""A statistic measured several ways as one part of the likelihood: its law, and the noise of all its measurements.

Measurements that share entries tie these together, so that the part is the whole statistic. Where law and noise are
normal, the measurements have a normal law themselves, and nothing is left to simulate. Derivations:
docs/derivations/likelihood.md.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from noisewise.inference.conditional.measured_normal import MeasuredNormal
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.cloud import Cloud
from noisewise.likelihood.e_step.released_law import Part
from noisewise.mechanisms import Exact
from noisewise.numerics import Array, Compiled, Values, double

MOST_NORMAL = 2_048
"""Most entries, and most measured values, for which a normal law is fitted in closed form."""


class MeasuredPart(Part):
    """One statistic with all its measurements; values of it are simulated whole."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.name, self.model, self.law = name, problem.model, problem.model.law(name)
        self.measurements = problem.measurements_of(name)
        self.exact, self.by_entry, self.shape = False, False, problem.model.shape(name)
        self.discrete = problem.model.is_discrete(name)
        self.kind, self.chart, atoms = self._kind()
        self.atomic = atoms and not self.discrete
        self._refuse_moving_atoms()
        self._refuse_a_moving_support()
        self.sweep = None

    def log_eta(self, s: Array) -> Array:
        """log density of all measurements for many values of s: (values, 1)."""
        total, flat = np.zeros(len(s)), s.reshape(len(s), -1)
        for matrix, mechanism, value in self.measurements.values():
            measured = matrix.times_rows(flat).reshape(len(s), *np.shape(value))
            with np.errstate(over="ignore", under="ignore"):
                log_eta = mechanism.log_prob(np.asarray(value), measured)
            total = total + np.asarray(log_eta).reshape(len(s), -1).sum(axis=1)
        return total[:, None]

    def log_sup(self) -> Array:
        """The most that `log_eta` can be."""
        return np.array([sum(float(np.sum(m.log_sup(value))) for _, m, value in self.measurements.values())])


class NormalMeasured(Part):
    """All measurements of a normal statistic, whose law is known: to a fit they are one value without noise."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.name, self.model, self.law = name, problem.model, problem.model.law(name)
        self.statistic = MeasuredPart(problem, name)
        """What was measured."""
        self.conditional = MeasuredNormal(problem, name)
        self.released = self.conditional.released()
        self.mechanism = Exact()
        self.item = self.mechanism.released(self.released[0])
        self.shape, self.exact, self.by_entry = self.released[0].shape, True, False
        self.kind, self.chart, self.atomic, self.discrete, self.sweep = "", "real", False, False, None

    @staticmethod
    def applies(problem: Problem, name: str) -> bool:
        """Whether law and noise are normal, with at most `MOST_NORMAL` entries and measured values."""
        return MeasuredNormal.applies(problem, name, MOST_NORMAL)

    def log_prob(self, values: Values, s: Any, place: Any) -> Any:
        """log density of the measurements `s`; traceable."""
        return self.conditional.log_kept(self.given(values), (s, self.released[1])).reshape(1)

    def compiled(self, purpose: str, build: Callable[[], Callable[..., Any]]) -> Compiled:
        """A program of this part, kept on the model for these scales of noise, which it holds."""
        key = (purpose, self.name, "measured", self.released[1].tobytes())
        return self.model.compiled.setdefault(key, Compiled(build))

    def behind(self, values: Values) -> Cloud:
        """The statistic given its measurements: points with its mean and covariance.

        log pi is quadratic in s, so its mean is its average over these points: the mean plus and minus root n times
        each column of a root of the covariance.
        """
        program = self.compiled("behind", lambda: self.conditional.given)
        with double():
            mean, covariance = (np.asarray(one) for one in program(self.given(values), self.released))
        variances, vectors = np.linalg.eigh(covariance)
        steps = (vectors * np.sqrt(np.maximum(variances, 0.0) * len(mean))).T
        points = np.concatenate([mean + steps, mean - steps])
        weights = np.full((len(points), 1), 1.0 / len(points))
        return Cloud(points.reshape(-1, *self.statistic.shape), weights, np.zeros(1))
