"""The measurement of a run: what its last sample tells, and whether that can be trusted."""

import math
from functools import partial

import numpy as np

from noisewise.inference.randomness import Purpose
from noisewise.likelihood.e_step.cloud import Cloud, Clouds
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.simulated import FEW, log_likelihood_error, smallest, some_of
from noisewise.likelihood.m_step.maximise import Louis
from noisewise.likelihood.monte_carlo.position import Position
from noisewise.numerics import Array

LIMIT = 6.0
"""Monte Carlo errors that two estimates of the information may lie apart."""
FEWEST = 2.0
"""Effective values that every entry must have at the end: the variance that k of them show is short by 1/k."""
ROUGH = (
    "the score has jumps (a law with a kink, such as dist.Laplace?), so that Louis's identity does not give the "
    "information, nor the standard errors. Use nw.EM(), or nw.sample."
)
THIN = (
    "of {size:,} values simulated at the end the noise leaves only {ess:.3g} effective ones{where}: neither the "
    "estimate nor its errors can be trusted. {advice}"
)
UNREST = (
    "the chains over {what} of '{name}' have not forgotten where they began: single {what} are hardly ever "
    "replaced, or few carry the total. Start nearer to the release, raise `final`, or use nw.sample."
)
UNKNOWN = (
    "The log likelihood is not known: of {size:,} values simulated for '{name}' the noise leaves only {ess:.3g} "
    "effective ones. Estimate and errors do not rest on them."
)


class FinalMeasurement:
    """The last sample of a run at its position, with score and information from it."""

    def __init__(self, position: Position, clouds: Clouds, louis: Louis, final: int) -> None:
        self.position, self.clouds, self.louis, self.final = position, clouds, louis, final

    def height(self, simulate: bool = True) -> tuple[float, float, str]:
        """The log likelihood, its Monte Carlo error, and what to say if it is not known.

        Where clouds know the likelihood only relative to their place, others that know it are simulated, if allowed.
        """
        relative = self.position.e_step.relative(self.position.parts)
        if relative and not simulate:
            return math.nan, math.nan, ""
        clouds = self.clouds.changed(self._absolute) if relative else self.clouds
        bias, error = log_likelihood_error(clouds)
        for part in relative:
            effective = float(clouds.sizes[part.name].min())
            if not effective >= FEW:
                size = part.sets(self.final)
                return math.nan, math.nan, UNKNOWN.format(size=size, name=part.name, ess=effective)
        return clouds.log_likelihood + bias, error, ""

    def _absolute(self, part: Part, cloud: Cloud) -> Cloud:
        position = self.position
        drawing, number = position.drawing(Purpose.HEIGHT), position.parts.index(part)
        return position.e_step.absolute(drawing, part, cloud, position.values, number, self.final)

    def tilt(self) -> Array:
        """The information's slope times its inverse, from some of the values, and some of very many entries.

        Central differences over a tenth of a standard error; all zero where there is no top.
        """
        position, louis = self.position, self.louis
        coordinates, objective = position.coordinates, position.objective
        size = len(louis.score)
        none = np.zeros((size, size, size))
        if not louis.has_top or not coordinates.is_square:
            return none
        some = self.clouds.changed(partial(some_of, share=FEW / max(smallest(self.clouds), FEW)))
        before = position.values

        def at(free: Array) -> Array:
            return objective.information_of_some(free, some.moved(before, coordinates.values(free)))

        inverse = np.linalg.inv(louis.information)  # that of some values might not be positive
        slopes = []
        for move in np.diag(0.1 * np.sqrt(np.maximum(np.diag(inverse), 0.0))):
            ends = [objective.stepped(position.free, side * move) for side in (-1.0, 1.0)]
            low, high = (coordinates.flat(coordinates.values(end)) for end in ends)
            slopes.append((at(ends[1]) - at(ends[0])) / float(np.max(np.abs(np.asarray(high - low)))))
        tilt = np.einsum("fab,fc->abc", np.array(slopes), inverse)
        return tilt if np.all(np.isfinite(tilt)) else none

    def too_thin(self) -> str:
        """A message about a sample that knows too little of its own error; empty for a good one."""
        position = self.position
        for part, cloud in zip(position.parts, self.clouds, strict=True):
            if not cloud.at_rest:
                return UNREST.format(name=part.name, what=getattr(part, "what", "values"))
        for name, sizes in self.clouds.sizes.items():
            bias, error = float(np.sum(sizes**-3.0)), math.sqrt(np.sum(1.0 / sizes))
            if np.sum(sizes) < FEW or sizes.min() < FEWEST or (len(sizes) > 1 and bias > 0.1 * error):
                where = f" for the worst entry of '{name}'" if len(sizes) > 1 else ""
                size, advice = min(self.final, position.room), position.e_step.advice(position.problem, name)
                return THIN.format(size=size, ess=float(sizes.min()), where=where, advice=advice)
        return ""

    def is_rough(self) -> bool:
        """Whether the score's slope over a third of a standard error is not at all what Louis's identity says."""
        position, louis = self.position, self.louis
        if all(part.smooth for part in position.parts):
            return False
        before = position.values

        def clouds_at(free: Array) -> Clouds:
            return self.clouds.moved(before, position.coordinates.values(free))

        slope = position.objective.slope(position.free, louis, 0.3, clouds_at)
        gap = np.abs(np.diag(slope - louis.information)) - LIMIT * np.sqrt(np.diag(louis.information_noise))
        return bool(np.any(gap > 0.5 * np.maximum(np.abs(np.diag(slope)), np.abs(np.diag(louis.information)))))
