"""A model, a plan and a target together: what releases by the plan would be worth, by closed form or by simulation."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from noisewise.errors import refusal
from noisewise.inference.problem import Problem
from noisewise.model import Model
from noisewise.numerics import Array
from noisewise.results.goal import Goal
from noisewise.studies.designs.counts import Mechanisms
from noisewise.studies.designs.gaussian import JointNormal
from noisewise.studies.designs.open_plan import OpenPlan
from noisewise.studies.designs.run import Effort, StudyRun
from noisewise.studies.designs.simulation import Simulation, checked_problem


@dataclass
class Setting:
    """What analysts believe, what curators may publish, and what it is to be good for."""

    model: Model
    plan: OpenPlan
    target: Goal
    problem: Problem
    """That a first release would pose."""
    joint: JointNormal | None
    """None: no closed form, and releases are simulated."""
    simulation: Simulation

    @classmethod
    def of(cls, effort: Effort, model: Model, plan: OpenPlan, target: Goal, budget: float, shares: Any = None) -> Self:
        """The three together; refused where mechanisms of that budget do not fit the model."""
        mechanisms = plan.at(budget, plan.shares(effort.who, shares))
        problem = checked_problem(model, mechanisms)
        joint = JointNormal.of(model, mechanisms, target)
        return cls(model, plan, target, problem, joint, Simulation(model, (target,), effort.seed, effort.engine))

    def keep(self, run: StudyRun, scope: int = 0, batches: int = 32) -> None:
        """From now on the simulation is part of a run; rows of so many batches are kept in memory."""
        self.simulation.run, self.simulation.scope, self.simulation.most_batches = run, scope, batches

    def means(self, mechanisms: Mechanisms, first: int, last: int) -> Array:
        """The target's averages by batch; by closed form, one number."""
        if self.joint is not None:
            return np.array([self.joint.value(mechanisms)])
        return self.simulation.means(mechanisms, first, last)


def is_model(who: str, model: Any) -> Model:
    """`model`, if it is one."""
    if not isinstance(model, Model):
        raise refusal(who, "model", "must be a noisewise Model", model, "Build it with nw.Model.")
    return model
