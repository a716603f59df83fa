"""Formulas, `y ~ x + offset(log(people)) + (1 | region)`: terms are read by formulaic, offsets and groups here."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise import checks
from noisewise.errors import InputError, refusal
from noisewise.numerics import Array

WHO = "regression"
EXAMPLE = "Write 'cases ~ x + offset(log(people)) + (1 | region)', say."
GROUP = re.compile(r"\((.*)\|(.*)\)", re.DOTALL)
OFFSET = re.compile(r"offset\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Formula:
    """A formula taken apart."""

    outcome: str
    fixed: str
    """Terms for formulaic."""
    offset: str | None
    groups: tuple[str, ...]
    """Columns that have an intercept for each of their levels."""

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
        for kind, found in (("offset", offsets[1:]), ("group", [g for g in groups if groups.count(g) > 1])):
            if found:
                raise refusal(WHO, "formula", f"must have each {kind} once", found[0], EXAMPLE)
        return cls(sides[0].strip(), " + ".join(fixed) or "1", offsets[0] if offsets else None, tuple(groups))


def _group(term: str, varying: str, group: str) -> str:
    if varying != "1" or not group.isidentifier():
        advice = "Only intercepts vary, by the levels of one column; write other models with nw.Model."
        raise refusal(WHO, "formula", "must have groups of the form (1 | region)", term, advice)
    return checks.name(WHO, "formula", group)


def _terms(side: str) -> list[str]:
    """What stands between plus signs outside all parentheses."""
    terms, depth = [""], 0
    for letter in side:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "+" and depth == 0:
            terms.append("")
        else:
            terms[-1] += letter
    found = [term.strip() for term in terms]
    if depth or "" in found:
        raise refusal(
            WHO, "formula", "must have a term at each side of every '+', and close its parentheses", side, EXAMPLE
        )
    return found


def formulaic() -> Any:
    """The package that reads formulas; refused with what to install where it is missing."""
    try:
        import formulaic
    except ImportError:
        advice = "Run pip install 'noisewise[formula]'."
        raise refusal(WHO, "formula", "needs the package formulaic", None, advice) from None
    return formulaic


def columns(terms: str, data: Any) -> tuple[list[str], Array]:
    """Names of the columns that terms make of a table, and the columns."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused below
            matrix = formulaic().Formula(terms).get_model_matrix(data, na_action="raise", context={}, output="pandas")
        names, values = list(matrix.columns), np.asarray(matrix, dtype=np.float64)
    except InputError:
        raise
    except Exception as error:  # formulaic's own, and those of functions in terms
        said = " ".join(re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).split())
        advice = f"{said.rstrip('.')}. {checks.nearest(terms, map(str, data.columns))}"
        raise refusal(
            WHO, "formula", "must be terms that formulaic can make of the table's columns", terms, advice
        ) from None
    if not np.isfinite(values).all():
        name = names[int(np.argmin(np.isfinite(values).all(axis=0)))]
        raise refusal(WHO, "formula", "must give finite numbers in every row", name, "Mend the rows of the table.")
    return names, values


def design(terms: str, data: Any) -> tuple[list[str], Array]:
    """As `columns`, refused where a column is a combination of those before it."""
    names, values = columns(terms, data)
    for number in range(1, len(names) + 1):
        if np.linalg.matrix_rank(values[:, :number]) < number:
            advice = "Leave it out: the data cannot tell it from the others."
            raise refusal(WHO, "formula", "must not have a column that the others give", names[number - 1], advice)
    return names, values
