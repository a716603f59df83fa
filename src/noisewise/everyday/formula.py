"""Formulas, `y ~ x + offset(log(people)) + (1 | region)`: terms are read by formulaic, offsets and groups here."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise import checks
from noisewise.errors import InputError, refusal
from noisewise.numerics import Array

WHO = "regression"
EXAMPLE = "Write 'cases ~ x + offset(log(people)) + (1 | region)', say."
GROUP = re.compile(r"\((.*)\|(.*)\)", re.DOTALL)
OFFSET = re.compile(r"offset\((.*)\)", re.DOTALL)
AXIS = "term"
"""The axis that coefficients are labelled along."""


@dataclass(frozen=True)
class Formula:
    """A formula taken apart."""

    outcome: str
    fixed: str
    """Terms for formulaic."""
    offset: str | None
    groups: tuple[str, ...]
    """Columns of the table, each with an intercept for every one of its levels."""

    @classmethod
    def read(cls, text: Any) -> "Formula":
        """The parts of a formula; a term that is not understood is named."""
        sides = text.split("~") if isinstance(text, str) else []
        if len(sides) != 2 or not sides[0].strip().isidentifier():
            raise refusal(WHO, "formula", "must have the name of a released entry before its only '~'", text, EXAMPLE)
        fixed: list[str] = []
        offsets: list[str] = []
        groups: list[str] = []
        for term in _terms(sides[1]):
            if match := OFFSET.fullmatch(term):
                offsets.append(match[1].strip())
            elif match := GROUP.fullmatch(term):
                groups.append(_group(term, match[1].strip(), match[2].strip()))
            elif "|" in term or "offset(" in term:
                raise refusal(WHO, "formula", "must have groups and offsets as terms of their own", term, EXAMPLE)
            else:
                fixed.append(term)
        for kind, repeated in (("offset", offsets[1:]), ("group", [g for g in groups if groups.count(g) > 1])):
            if repeated:
                raise refusal(WHO, "formula", f"must have each {kind} once", repeated[0], EXAMPLE)
        return cls(sides[0].strip(), " + ".join(fixed) or "1", offsets[0] if offsets else None, tuple(groups))


def _group(term: str, varying: str, group: str) -> str:
    if varying != "1" or not group.isidentifier():
        advice = "Only intercepts vary, by the levels of one column; write other models with nw.Model."
        raise refusal(WHO, "formula", "must have groups of the form (1 | region)", term, advice)
    if group == AXIS:
        advice = "Rename that column."
        raise refusal(WHO, "formula", f"must not have groups by '{AXIS}', the axis of coefficients", term, advice)
    return checks.name(WHO, "formula", group)


def _terms(side: str) -> list[str]:
    """What stands between plus signs outside all parentheses and names in backticks."""
    terms, depth, quoted = [""], 0, False
    for letter in side:
        quoted ^= letter == "`"
        depth += 0 if quoted else (letter in "([{") - (letter in ")]}")
        if letter == "+" and depth == 0 and not quoted:
            terms.append("")
        else:
            terms[-1] += letter
    stripped = [term.strip() for term in terms]
    if depth or "" in stripped:
        raise refusal(
            WHO, "formula", "must have a term at each side of every '+', and close its parentheses", side, EXAMPLE
        )
    return stripped


def formulaic() -> Any:
    """The package that reads formulas; refused with what to install where it is missing."""
    try:
        import formulaic
    except ImportError:
        advice = "Run pip install 'noisewise[formula]'."
        raise refusal(WHO, "formula", "needs the package formulaic", None, advice) from None
    return formulaic


class DesignMatrix(NamedTuple):
    """The columns that the terms of a formula make of a table."""

    names: list[str]
    values: Array
    """A row for each row of the table, a column for each name."""
    terms: list[slice]
    """Which columns each term has made."""

    @property
    def levels(self) -> Array:
        """For each column, whether its coefficient is a level of the outcome itself.

        That is so for a constant, and for indicators of one term of which each row has exactly one, as those of a
        category without an intercept.
        """
        is_constant = np.ptp(self.values, axis=0) == 0.0
        for term in self.terms:
            part = self.values[:, term]
            is_constant[term] |= bool(np.isin(part, (0.0, 1.0)).all() and np.all(part.sum(axis=1) == 1.0))
        return is_constant


def columns(terms: str, data: Any) -> DesignMatrix:
    """The design matrix that terms make of a table; refused where its numbers are not all finite."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused below
            matrix = formulaic().Formula(terms).get_model_matrix(data, na_action="raise", context={}, output="pandas")
        made = DesignMatrix(
            list(matrix.columns),
            np.asarray(matrix, dtype=np.float64),
            list(matrix.model_spec.term_slices.values()),
        )
    except InputError:
        raise
    except Exception as error:  # formulaic's own, and those of functions in terms
        said = " ".join(re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).split())
        advice = f"{said.rstrip('.')}. {checks.nearest(terms, map(str, data.columns))}"
        raise refusal(
            WHO, "formula", "must be terms that formulaic can make of the table's columns", terms, advice
        ) from None
    finite = np.isfinite(made.values).all(axis=0)
    if not finite.all():
        name = made.names[int(np.argmin(finite))]
        raise refusal(WHO, "formula", "must give finite numbers in every row", name, "Mend the rows of the table.")
    return made


def design_columns(terms: str, data: Any) -> DesignMatrix:
    """As `columns`, refused where there are none, or where a column is a combination of those before it."""
    made = columns(terms, data)
    if not made.names:
        advice = "Leave '0 +' out: groups vary about a common intercept."
        raise refusal(WHO, "formula", "must have an intercept or a covariate", terms, advice)
    largest = np.abs(made.values).max(axis=0)
    unitless = made.values / np.where(largest > 0.0, largest, 1.0)  # rank is told by sizes, and units are no matter
    for number in range(1, len(made.names) + 1):
        if np.linalg.matrix_rank(unitless[:, :number]) < number:
            advice = "Leave it out: the data cannot tell it from the others."
            raise refusal(WHO, "formula", "must not have a column that the others give", made.names[number - 1], advice)
    return made
