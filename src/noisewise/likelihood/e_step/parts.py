"""All released statistics as parts of the likelihood."""

from typing import cast

from noisewise.errors import Place, refusal
from noisewise.inference.problem import Problem
from noisewise.likelihood.e_step.measured import MeasuredPart, NormalMeasured
from noisewise.likelihood.e_step.released_law import Part
from noisewise.likelihood.e_step.simulated_records import SimulatedRecords
from noisewise.likelihood.instead import MCEM, SAMPLE


def parts_of(
    problem: Problem, records: type[SimulatedRecords] | None = None, tables: type[MeasuredPart] = MeasuredPart
) -> list[Part]:
    """The parts of the likelihood; a model is refused if a statistic does not have a law of parameters alone.

    Released totals are refused too, unless `records` gives the class of their parts. `tables` is the class of the part
    of a whole-number statistic that is measured several ways.
    """
    measured = {one.statistic for one in problem.measured.values()}
    others = problem.needed - set(problem.measured) - set(problem.model.parameters)
    for name in filter(others.__contains__, problem.model.order):  # of several, the first is named
        _check(problem, name, name in measured, records is not None)
    owners = {name: problem.measured[name].statistic if name in problem.measured else name for name in problem.release}
    return [_part(problem, name, name in measured, records, tables) for name in dict.fromkeys(owners.values())]


def _check(problem: Problem, name: str, measured: bool, simulated: bool) -> None:
    """Refuse a statistic whose law does not depend on parameters alone, or has no density."""
    model, place = problem.model, Place.of("statistics", name)
    if not model.has_density(name):
        total = model.total(name) is not None
        if total and measured:
            rule = "must not be a Total that is measured under other names"
            raise refusal("fit", place, rule, "a Total", "Use nw.sample.", instead=(SAMPLE,))
        if total and simulated and name in problem.release:
            return
        advice = "Use nw.MCEM(), which simulates the records." if total else "Give it as a law, or use nw.sample."
        given = "a Total" if total else "a Simulator"
        raise refusal("fit", place, "must have a density", given, advice, instead=(MCEM if total else SAMPLE,))
    if not (name in problem.release or measured) or set(model.parents(name)) - set(model.parameters):
        rule = "must be released and depend on parameters only"
        raise refusal("fit", place, rule, model.parents(name), "Use nw.sample.", instead=(SAMPLE,))
    for other, (_, mechanism, _) in problem.measurements_of(name).items():
        if mechanism.inputs:
            rule = "must not take its scale from another statistic"
            raise refusal("fit", Place.of("release", other), rule, mechanism, "Use nw.sample.", instead=(SAMPLE,))


def _part(
    problem: Problem, name: str, measured: bool, records: type[SimulatedRecords] | None, tables: type[MeasuredPart]
) -> Part:
    if measured and NormalMeasured.applies(problem, name):
        return NormalMeasured(problem, name)
    if measured:
        return tables(problem, name) if problem.model.is_discrete(name) else MeasuredPart(problem, name)
    if records is not None and problem.model.total(name) is not None:
        return cast(Part, records(problem, name))
    return Part(problem, name)
