"""A table of noisy counts by labels."""

from collections.abc import Mapping
from typing import Any

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.entries import released_entry
from noisewise.everyday.priors import with_given
from noisewise.everyday.written import Written
from noisewise.model import Model
from noisewise.release import Release

WHO = "table_of"


def table_of(
    release: Release, counts: str, *, n: int | str | None = None, prior: Mapping[str, Any] | None = None
) -> Model:
    """Rates or shares behind a table of noisy counts: `nw.table_of(release, "counts")`.

    `counts` names the released table, an array with one axis or more; its labels become those of the parameters.

    Without `n`: cells are independent, each Poisson with a `rate` of its own, and `share` is each cell's part of the
    sum of rates. With `n`, the public number of people in the table, which must have one axis: people are
    independent, and the counts are Multinomial(n, share). A total that was released with noise measures the table:
    `people=mechanism.of("counts", sum=True).released(215)`. So do margins. They enter the inference whether or not the
    total is named, `n="people"`; cells are Poisson in either case.

    Priors: rate ~ LogNormal(4, 2.5), from 0.4 to 7,300 in 95 of 100 cases; or share ~ Dirichlet(1, ..., 1), all tables
    of shares alike. Change them by `prior={"rate": dist.Gamma(2.0, 0.1)}`, or change `model.code`, the Python that
    makes the model.
    """
    item = released_entry(WHO, "counts", release, counts, ("rate", "share"))
    shape = item.shape
    if not shape:
        raise refusal(WHO, "counts", "must be a table", f"'{counts}', a single number", "See nw.share_of.")
    names: tuple[str, ...]
    if isinstance(n, str):
        _check_total(release, n, counts)
    if n is None or isinstance(n, str):
        default = f"dist.LogNormal(4.0, 2.5).expand({list(shape)})"
        laws = with_given(WHO, {"rate": default}, prior, {"rate": shape})
        statistic, names = "lambda rate: dist.Poisson(rate)", ("rate", "share")
        derived = {"share": "lambda rate: rate / rate.sum()"}
    else:
        n = checks.integer(WHO, "n", n, least=1, advice="Give the public number of people, or leave it out.")
        if len(shape) > 1 or shape[0] < 2:
            advice = "Leave n out: rates and their shares are then those of independent cells."
            raise refusal(WHO, "n", "must be left out where a table has not one axis of two cells or more", n, advice)
        laws = with_given(WHO, {"share": f"lambda: dist.Dirichlet(jnp.ones({shape[0]}))"}, prior)
        statistic, names, derived = f"lambda share: dist.Multinomial({n}, share)", ("share",), {}
    axes = tuple(item.coords)
    dims = dict.fromkeys((*names, counts), axes) if axes else {}
    return Written(laws, {counts: statistic}, derived=derived, dims=dims).model()


def _check_total(release: Release, name: str, counts: str) -> None:
    """Refuse a total that does not say of which table it is."""
    item = released_entry(WHO, "n", release, name, ("rate", "share"))
    if item.of is None or item.of.statistic != counts or item.shape:
        made = f"release['{name}'].mechanism.of('{counts}', sum=True).released(release['{name}'].value)"
        advice = f"Make the release anew with {name}={made}."
        raise refusal(WHO, "n", f"must measure the sum of '{counts}', where it has noise", name, advice)
