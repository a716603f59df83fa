"""The mean of clamped values, from a noisy sum or mean."""

from collections.abc import Mapping
from typing import Any

from noisewise.errors import refusal
from noisewise.everyday.entries import bounds_of, single_number, size
from noisewise.everyday.priors import with_given
from noisewise.everyday.records import record
from noisewise.everyday.written import Written, quoted
from noisewise.model import Model
from noisewise.release import Release

WHO = "mean_of"
OWN = ("mean", "sd", "sigma", "shape", "size", "record", "sums")


def mean_of(
    release: Release,
    sum: str | None = None,
    *,
    mean: str | None = None,
    squares: str | None = None,
    n: int | str | None = None,
    bounds: tuple[float, float] | None = None,
    law: str = "Normal",
    most: int | None = None,
    prior: Mapping[str, Any] | None = None,
) -> Model:
    """The mean of the records behind a noisy sum: `nw.mean_of(release, "total", n=100, bounds=(0, 80))`.

    `sum` names the released sum of values that were clamped to `bounds` one by one; or `mean` names their released
    mean, and `squares` the released sum of their squares. `n` is the number of records where it is public, or the name
    of its noisy count; there are then at most `most`. Bounds and a public number may be left out where the release
    states them, `described(bounds=..., records=...)`.

    Assumed: records are independent and follow `law`, before they were clamped: "Normal" (mean, sd), "LogNormal"
    (mean, sigma), "Gamma" (mean, shape), "Exponential" (mean), or "Beta" (mean, size) between the bounds. `mean` is
    that of the values before they were clamped: how they lie beyond the bounds is known from the law alone.

    Priors, weakly informative, from the bounds alone (middle m, width w): mean ~ Normal(m, w), or LogNormal(log m, 1)
    where values are positive, or Uniform over the bounds for Beta; sd ~ HalfNormal(w / 2), sigma ~ HalfNormal(1),
    shape ~ LogNormal(0.5, 1), size ~ LogNormal(1.5, 1); a noisy n is uniform on 1, ..., `most`. Change any by
    `prior={"mean": dist.Normal(50.0, 20.0)}`, or change `model.code`, the Python that makes the model.
    """
    published = _published(release, sum, mean, squares)
    stated = release[published[0]].about
    low, high = bounds_of(WHO, "bounds", bounds, stated.get("bounds"))
    number, counted = size(WHO, release, n, most, (*OWN, *published), stated.get("records"))
    if mean is not None and counted:
        advice = "The mean is then a ratio of two unknown numbers: have the sum released, and give sum=..."
        raise refusal(WHO, "n", "must be public where the mean was released", n, advice)
    one = record(WHO, law, "record", (low, high))
    laws = with_given(WHO, {**one.prior, **counted}, prior)
    first = one.clamped if mean is None else f"({one.clamped}) / {number}"
    parts = [first] if squares is None else [first, f"({one.clamped}) ** 2"]
    total = 'nw.Total(\n    record={{"record": {}}},\n    contribution=lambda record: {},\n    n={},\n)'
    added = parts[0] if len(parts) == 1 else f"jnp.stack([{', '.join(parts)}])"
    sums = total.format(one.law, added, quoted(number))
    statistics = {published[0]: sums}
    if len(parts) > 1:
        places = {name: f"lambda sums: dist.Delta(sums[{i}])" for i, name in enumerate(published)}
        statistics = {"sums": sums, **places}
    return Written(
        {name: laws[name] for name in one.prior},
        {**{name: laws[name] for name in counted}, **statistics},
        own=("record", "sums") if len(parts) > 1 else ("record",),
        quantity="mean",
    ).model()


def _published(release: Release, sum: str | None, mean: str | None, squares: str | None) -> list[str]:
    """Names of the entries: the sum or the mean, and the sum of squares where there is one."""
    if (sum is None) == (mean is None):
        rule, advice = "must be given, or 'mean' in its place", 'Give nw.mean_of(release, "total", ...).'
        raise refusal(WHO, "sum", rule, {"sum": sum, "mean": mean}, advice)
    first = (
        single_number(WHO, "sum", release, sum, OWN) if mean is None else single_number(WHO, "mean", release, mean, OWN)
    )
    return [first] if squares is None else [first, single_number(WHO, "squares", release, squares, (*OWN, first))]
