"""The climb: E-steps and M-steps on samples whose sizes follow a schedule, until a step shows no rise."""

import math
from functools import partial
from typing import Any

import numpy as np
from scipy.special import chdtri, ndtri

from noisewise.inference.progress import Steps
from noisewise.likelihood.e_step.cloud import Clouds
from noisewise.likelihood.e_step.simulated import both, eased, is_even, smallest, thin
from noisewise.likelihood.e_step.sufficient import condensed, is_family
from noisewise.likelihood.monte_carlo.iterations import Iterations
from noisewise.likelihood.monte_carlo.position import Position
from noisewise.likelihood.result import at_edge, edge_message, gain, standard_errors_left
from noisewise.likelihood.schedules import Ascent, Staged, next_size
from noisewise.numerics import Array

IDLE = 3
"""Steps in a row, on the largest samples, without a rise above noise that end a climb: one may be chance."""
SLOW = 10
"""Steps after which a climb looks whether Newton's can help: EM's may be many and small."""


class Climb:
    """Moves a position up the simulated likelihood, as a schedule says."""

    def __init__(self, schedule: Ascent | Staged, position: Position, iterations: Iterations, progress: Steps) -> None:
        self.schedule, self.position, self.iterations, self.progress = schedule, position, iterations, progress

    def run(self) -> tuple[str, str]:
        """Climb, unless the log has the end of the climb already: status and message."""
        position, iterations = self.position, self.iterations
        iterations.check()
        end = iterations.end()
        if end is not None:
            return end
        start = position.free
        status, message = self._climb()
        if status == "boundary" and not position.sees_all:  # by some of the entries: climb again with all
            position.free = start
            iterations.begin_again()
            position.look_at_all()
            status, message = self._climb()
        iterations.save_end(status, message)
        return status, message

    def _climb(self) -> tuple[str, str]:
        plan = self.schedule
        return self.ascent(plan) if isinstance(plan, Ascent) else self.staged(plan)

    # Schedules --------------------------------------------------------------------------------------------------------

    def ascent(self, plan: Ascent) -> tuple[str, str]:
        """Caffo, Jank and Jones: climb only when the sample shows a rise, and grow the sample until it does."""
        position, iterations = self.position, self.iterations
        lower, upper, power = -ndtri(plan.alpha), -ndtri(plan.gamma), -ndtri(plan.beta)
        most = min(plan.most, position.room)
        noise = max(lower, 0.5 * math.sqrt(chdtri(position.coordinates.size, plan.alpha)))
        place = iterations.resumed({"size": min(plan.start, most), "idle": 0, "height": -math.inf})
        size, idle, height = place["size"], place["idle"], place["height"]
        for iteration in range(len(iterations.trace), iterations.most):
            clouds, batch = position.step(iteration, 0, size), 1
            if position.e_step.eases and thin(clouds) and clouds.log_likelihood > height + 1.0:
                height = clouds.log_likelihood
                edge = self._advance(self._m_step(eased(clouds)), size, clouds, f"height {height:.3g}")
                if edge is not None:
                    return boundary(position, edge)
                iterations.save(size=size, idle=idle, height=height)
                continue
            while True:
                new = self._m_step(clouds)
                rise, error = self.rise(new, clouds)
                shown = not thin(clouds)  # else the error is not known, nor what it would decide
                if size >= most or (shown and (rise - lower * error > 0 or rise + upper * error < plan.tolerance)):
                    break
                more = min(math.ceil(size * (plan.growth - 1.0)), most - size)
                clouds = both(clouds, position.step(iteration, batch, more), size, more)
                size, batch = size + more, batch + 1
            edge = self._advance(new, size, clouds, f"rise {rise:.3g}", rise=rise, rise_error=error)
            if edge is not None:
                return boundary(position, edge)
            if shown and rise + upper * error < plan.tolerance:
                return "converged", ""
            if shown and iteration % SLOW == SLOW - 1:
                self._leap()
            idle = idle + 1 if shown and size >= most and rise - noise * error <= 0 else 0
            if idle == IDLE:
                return "converged", f"the sample size reached most={most}: the rise is within its noise."
            size = min(most, max(size, next_size(rise, error, size, lower, power)))
            iterations.save(size=size, idle=idle, height=height)
        return "max_iterations", f"MCEM has not converged in max_iterations={iterations.most} steps. Raise it."

    def staged(self, plan: Staged) -> tuple[str, str]:
        """The paper's three stages."""
        position, iterations = self.position, self.iterations
        place = iterations.resumed({"stage": 0, "step": 0, "capped": []})
        stage, step, capped = place["stage"], place["step"], place["capped"]
        while stage < len(plan.sizes):
            size = min(plan.sizes[stage], position.room)
            clouds = position.step(len(iterations.trace), 0, size)
            new = self._m_step(clouds)
            before, after = position.values, position.coordinates.values(new)
            change = max(float(np.max(np.abs(after[name] - before[name]))) for name in after)
            edge = self._advance(new, size, clouds, f"change {change:.3g}", stage=stage + 1)
            if edge is not None:
                return boundary(position, edge)
            small, step = change < plan.tolerances[stage] and not thin(clouds), step + 1
            if not small and step == plan.cap:
                capped.append(stage + 1)
            if small or step == plan.cap:
                stage, step = stage + 1, 0
            iterations.save(stage=stage, step=step, capped=capped)
        message = f"stages {capped} ended at their cap of {plan.cap} steps, within their own noise." if capped else ""
        return "converged", message

    # Steps ------------------------------------------------------------------------------------------------------------

    def _m_step(self, clouds: Clouds) -> Array:
        position = self.position
        held = position.held or all(is_family(part) for part in position.parts)
        return position.objective.maximise(position.free, clouds.changed(condensed, held=held))[0]

    def rise(self, new: Array, clouds: Clouds) -> tuple[float, float]:
        """Q(new) - Q(here) and its Monte Carlo standard error: delta method for weights, batch means for chains."""
        position = self.position
        before, after = position.values, position.coordinates.values(new)
        total, variance = 0.0, 0.0
        for part, cloud in zip(position.parts, clouds, strict=True):
            change = part.log_prob_many(after, cloud.values) - part.log_prob_many(before, cloud.values)
            change = np.where(cloud.weights > 0, change, 0.0)
            mean = np.sum(cloud.weights * change, axis=0)
            total += float(mean.sum())
            variance += cloud.variance(position.e_step.independent(cloud.weights * (change - mean)))
        return total, math.sqrt(variance)

    def _advance(self, new: Array, size: int, clouds: Clouds, note: str, **more: Any) -> str | None:
        """Record a step and take it; the parameter, if any, that it shows to run to the edge of its space."""
        position, trace = self.position, self.iterations.trace
        ess, iteration, values = smallest(clouds), len(trace), position.coordinates.values(new)
        trace.append({"iteration": iteration, "size": size, "ess": ess, **values, **more})
        self.progress.step(iteration, f"{size:,} values, {note}")
        outwards = (new - position.free) * position.free > 0
        edge = at_edge(position.coordinates, position.free, partial(self._gained, clouds)) if outwards.any() else None
        position.free = new
        return edge

    def _gained(self, clouds: Clouds, i: int, start: float, end: float) -> float:
        """Log likelihood gained by moving one free coordinate from start to end."""
        position = self.position
        before, after = (gain(position.objective, position.free, clouds, i, place)[0] for place in (start, end))
        return after - before

    def _leap(self) -> None:
        """Newton's step to the top, or a standard error of the way, if the sample then gives a higher likelihood.

        Where the noise hides much, EM's steps are many small ones in the same direction.
        """
        position = self.position
        here = position.here()
        louis = position.objective.score_and_information(position.free, here)
        left = standard_errors_left(louis.score - louis.bias, louis.information)
        if position.last is None or not 0.0 < left < math.inf:
            return
        before, drawn = position.last
        new = position.objective.stepped(position.free, louis.newton()[0] / max(left, 1.0))
        there = drawn.moved(before, position.coordinates.values(new))
        if there.log_likelihood > here.log_likelihood and is_even(there, drawn):
            position.free = new


def boundary(position: Position, name: str) -> tuple[str, str]:
    """Status and message of a run that ends at the edge of that parameter's space."""
    return "boundary", edge_message(name, position.values)
