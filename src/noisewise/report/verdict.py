"""May the numbers be used? Each diagnostic in plain words, and one verdict of them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noisewise.diagnostics import chains, weights
from noisewise.diagnostics.surprise import SURPRISING, whole_release
from noisewise.inference.status import POSTERIOR
from noisewise.report.markup import listed, number
from noisewise.results.posterior import Posterior

LEAST_TAIL = 1 / 200
"""The least tail probability that the check of prior against release can give."""
ENOUGH = 400
"""Independent draws that means and intervals need, as samplers' `min_ess`."""


@dataclass(frozen=True)
class Check:
    """One diagnostic: `state` is good, note (nothing to judge), look or bad."""

    state: str
    title: str
    explanation: str


@dataclass(frozen=True)
class Verdict:
    """What the checks amount to."""

    state: str
    """good: trust it; look: look again; bad: do not use."""
    checks: tuple[Check, ...]
    error: str = "a small simulation error"
    """The error up to which the numbers are right, in words."""

    @property
    def title(self) -> str:
        """The verdict in two or three words."""
        return {"good": "Trust it", "look": "Look again", "bad": "Do not use"}[self.state]

    @property
    def explanation(self) -> str:
        """Why, in a sentence or two."""
        if self.state == "good":
            return (
                "The computation did what it should. The numbers are right for the stated model and the stated noise, "
                f"up to {self.error}; whether the model is right is another question."
            )
        wrong = [check.title.lower() for check in self.checks if check.state == self.state]
        lead = "The numbers below should not be used" if self.state == "bad" else "The numbers below need a second look"
        return f"{lead}, because of: {listed(wrong)}. The report's section on trust says what to do."


def has_usable_draws(posterior: Posterior) -> bool:
    """Whether a posterior has draws, with weights that can be used."""
    return len(posterior) > 1 and (posterior.weights is None or bool(np.all(np.isfinite(posterior.weights))))


def judge(posterior: Posterior, conflict: Mapping[str, float] | None, far: Sequence[str] = ()) -> Verdict:
    """All checks of a posterior, and of prior against release where `conflict` holds its tail probabilities.

    `far` says which published values lie far from what the prior expects.
    """
    checks = [_run(posterior)]
    if has_usable_draws(posterior):
        checks += [_size(posterior), *_error(posterior), *_moments(posterior), *_chains(posterior), *_tail(posterior)]
    checks.append(_conflict(conflict, far))
    return verdict_of(checks)


def verdict_of(checks: list[Check], error: str = Verdict.error) -> Verdict:
    """The verdict of several checks: as bad as the worst of them."""
    states = {check.state for check in checks}
    return Verdict("bad" if "bad" in states else "look" if "look" in states else "good", tuple(checks), error)


def sentence(message: str) -> str:
    """A message with a blank before it and a capital; a name that begins it, as max_proposals, keeps its spelling."""
    first = message.split(" ", 1)[0].rstrip(",.:")
    return f" {message[:1].upper() if first.isalpha() else message[:1]}{message[1:]}" if message else ""


def _run(posterior: Posterior) -> Check:
    title, status, count = "The run", posterior.status, f"{len(posterior):,}"
    message = sentence(posterior.message)
    if not has_usable_draws(posterior):
        draws = f"{count} draws" + (" of no weight" if len(posterior) > 1 else "")
        return Check("bad", title, f"It gave {draws}, so there is no answer (status {status}).{message}")
    end = POSTERIOR[status]
    if end.numbers == "usable":
        return Check("good", title, f"It finished and gave {count} draws.")
    if end.numbers == "doubtful":
        return Check("look", title, f"{end.meaning} It gave {count} draws (status {status}).{message}")
    return Check("bad", title, f"{end.meaning} (Status {status}.){message}")


def _size(posterior: Posterior) -> Check:
    sizes = {name: size for name, size in posterior.ess.items() if np.isfinite(size)}
    if not sizes:
        return Check("good", "Number of draws", "Nothing varies: every quantity has one possible value.")
    name = min(sizes, key=lambda quantity: sizes[quantity])
    worth = f"The {len(posterior):,} draws are worth at least {sizes[name]:,.0f} independent ones"
    if sizes[name] < ENOUGH:
        least = f"; that is few ({name} is worst; {ENOUGH} are enough for means and intervals). Ask for more draws."
        return Check("look", "Number of draws", worth + least)
    return Check("good", "Number of draws", f"{worth}; {ENOUGH} are enough for means and intervals.")


def _error(posterior: Posterior) -> list[Check]:
    table = posterior.summary()
    share = (table["mcse"] / table["sd"]).replace([np.inf, -np.inf], np.nan).dropna()
    if not len(share):
        return []
    label = str(share.idxmax())
    explanation = (
        f"With another seed the mean of {label} would move by about {number(table['mcse'][label], 2)}, which is "
        f"{number(100 * share[label], 2)}% of its standard deviation; other means move less in proportion."
    )
    return [Check("good" if share[label] < 0.1 else "look", "Simulation error", explanation)]


def _moments(posterior: Posterior) -> list[Check]:
    return [Check("note", "Means", posterior.without_moments)] if posterior.without_moments else []


def _chains(posterior: Posterior) -> list[Check]:
    agreement = {name: value for name, value in (posterior.r_hat or {}).items() if np.isfinite(value)}
    if not agreement:
        return []
    name = max(agreement, key=lambda quantity: agreement[quantity])
    value = f"R-hat {agreement[name]:.3f} for {name}; below {chains.LIMIT:g} is good"
    if agreement[name] > chains.LIMIT:
        return [Check("bad", "Agreement of chains", f"The {posterior.chains} chains disagree ({value}).")]
    return [Check("good", "Agreement of chains", f"{posterior.chains} chains from different starts agree ({value}).")]


def _tail(posterior: Posterior) -> list[Check]:
    k = posterior.diagnostics.get("pareto_k")
    if posterior.log_weights is None or not isinstance(k, (int, float)) or np.isnan(k):
        return []
    size = next(iter(posterior.ess.values()), 0.0)
    share = f"{number(100 * size / len(posterior), 2)}% of the draws' number is left after weighting"
    if k > weights.LARGEST_K:
        return [
            Check(
                "bad",
                "Weights",
                f"A few draws dominate (Pareto k {k:.2f}, above {weights.LARGEST_K}). Use another sampler.",
            )
        ]
    shown = f"Pareto k {k:.2f}, below {weights.LARGEST_K}" if np.isfinite(k) else "all alike"
    return [Check("good", "Weights", f"No few draws dominate ({shown}); {share}.")]


def _conflict(conflict: Mapping[str, float] | None, far: Sequence[str]) -> Check:
    title = "Prior and release"
    if not conflict:
        return Check("note", title, "It was not checked whether the release is surprising under the prior.")
    name, value = whole_release(conflict)
    if value < SURPRISING:
        what = "The release as a whole is" if name == "release" else f"The published {name} is"
        share = "fewer than 1 in 200" if value <= LEAST_TAIL else f"only {number(100 * value, 2)}%"
        explanation = (
            f"{what} surprising under the prior: {share} of the releases that the model expects are as unusual. "
            "The numbers are right if the model is; ask whether prior and model are, before using them."
        )
        return Check("look", title, " ".join([*far, explanation]))
    explanation = (
        f"The release is no surprise under the prior: {number(100 * value, 2)}% of releases that the model expects"
    )
    return Check("good", title, f"{explanation} are as unusual or more.")
