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
    """Model, plan and target, with the closed form or else the simulation that serves them."""

    model: Model
    plan: OpenPlan
    target: Goal
    problem: Problem
    """The inference problem that a release at the first budget poses."""
    joint: JointNormal | None
    """The law that gives closed forms; None where there is none, and releases are simulated."""
    simulation: Simulation

    @classmethod
    def of(cls, effort: Effort, model: Model, plan: OpenPlan, target: Goal, budget: float, shares: Any = None) -> Self:
        """Model, plan and target together; refused where the plan's mechanisms at this budget do not fit the model."""
        mechanisms = plan.at(budget, plan.shares(effort.who, shares))
        problem = checked_problem(model, mechanisms)
        joint = JointNormal.of(model, mechanisms, target)
        return cls(model, plan, target, problem, joint, Simulation(model, (target,), effort.seed, effort.engine))

    def keep(self, run: StudyRun, scope: int = 0, batches: int = 32) -> None:
        """Make the simulation part of a run from now on, with the rows of at most `batches` batches kept in memory."""
        self.simulation.run, self.simulation.scope, self.simulation.most_batches = run, scope, batches

    def means(self, mechanisms: Mechanisms, first: int, last: int) -> Array:
        """The target's average in each batch from `first` to before `last`; by closed form, one number."""
        if self.joint is not None:
            return np.array([self.joint.value(mechanisms)])
        return self.simulation.means(mechanisms, first, last)


def is_model(who: str, model: Any) -> Model:
    """`model` itself; refused unless it is a `Model`."""
    if not isinstance(model, Model):
        raise refusal(who, "model", "must be a noisewise Model", model, "Build it with nw.Model.")
    return model
