"""The end of a climb: Newton steps on fresh samples to the top."""

from dataclasses import dataclass, replace

import numpy as np

from noisewise.inference.progress import Steps
from noisewise.likelihood.e_step.cloud import Clouds
from noisewise.likelihood.e_step.simulated import first_half, is_even, second_half
from noisewise.likelihood.m_step.maximise import Louis
from noisewise.likelihood.monte_carlo.iterations import Iterations
from noisewise.likelihood.monte_carlo.position import Position
from noisewise.likelihood.result import near_edge

UNSETTLED = (
    "the climb ended, but Newton steps on five fresh samples did not lead to a root of the score: this is "
    "not the top. Start nearer to it, raise `most`, or use another e_step."
)
ATTEMPTS = 5
"""Fresh samples on which a root of the score is looked for."""
NEWTON = 4
"""Newton steps on one sample: each roughly squares the distance to its root."""

BIASED = ("score", "bias", "information", "information_bias", "complete")


@dataclass(frozen=True)
class Settled:
    """The last sample, with score and information from it, and whether it is at the top."""

    clouds: Clouds
    louis: Louis
    edge: str | None = None
    """The parameter, if any, whose space ends here."""
    at_root: bool = True
    """Whether the last Newton step was within its Monte Carlo error."""


class Settling:
    """Moves a position from the end of a climb to the root of the score of a fresh sample.

    That root is the estimate, and its error follows from Louis's moments.
    """

    def __init__(self, position: Position, iterations: Iterations, progress: Steps, final: int) -> None:
        self.position, self.iterations, self.progress = position, iterations, progress
        self.size = min(final, position.room)

    def run(self, newton: bool = True) -> Settled:
        """Newton steps, where asked for, on one sample after another until they find its root.

        A climb may end near an edge that it reaches too slowly to see: then the parameter is named, and no step taken.
        """
        position = self.position
        position.look_at_all()
        first = min(self.iterations.first_attempt(), ATTEMPTS - 1)
        for attempt in range(first, ATTEMPTS):
            self.iterations.save_attempt(attempt)
            self.progress.step(len(self.iterations.trace), f"measuring at the top with {self.size:,} values")
            clouds = position.measure(attempt, self.size)
            louis = position.objective.score_and_information(position.free, clouds)
            if newton:
                edge = near_edge(position.objective, position.free, clouds, louis.score, louis.information)
                if edge is not None:
                    return Settled(clouds, louis, edge=edge)
            if not newton or not louis.has_top:
                return Settled(clouds, louis)
            settled = self._root(clouds, louis)
            if settled.at_root:
                return settled
        return settled

    def _root(self, drawn: Clouds, louis: Louis) -> Settled:
        """Newton steps on one sample, moved along, until its score vanishes within a tenth of its error.

        A sample that has become uneven on the way cannot tell: the next one, drawn where this one leads, must.
        """
        position = self.position
        rest = bias_left(position, drawn, louis)
        step, _ = (louis + rest).newton()
        for _ in range(NEWTON):
            position.free = position.objective.stepped(position.free, step)
            clouds = position.here()
            louis = position.objective.score_and_information(position.free, clouds) + rest
            if not is_even(clouds, drawn) or not louis.has_top:
                break
            step, error = louis.newton()
            if np.all(np.abs(step) <= 0.1 * error):
                return Settled(clouds, louis)
        return Settled(clouds, louis, at_root=False)


def bias_left(position: Position, clouds: Clouds, louis: Louis) -> Louis:
    """What corrections of first order leave of the biases: by halves of the sample, which have four times as much.

    The complete information has no correction: for it, this is the bias of first order with its sign turned.
    """
    rest = Louis.nothing(len(louis.score))
    if not any(part.entries > 1 for part in position.parts):
        return rest
    score_and_information = position.objective.score_and_information
    halves = [score_and_information(position.free, clouds.changed(half)) for half in (first_half, second_half)]
    apart = [0.5 * (getattr(halves[0], one) + getattr(halves[1], one)) - getattr(louis, one) for one in BIASED]
    score, bias, information, information_bias, complete = apart
    left = {"bias": (score - bias) / 3.0, "information_bias": (information - information_bias) / 3.0}
    return replace(rest, **left, complete=-complete)
