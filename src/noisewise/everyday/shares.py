"""The share behind a noisy count of yes."""

from collections.abc import Mapping
from typing import Any

from noisewise.everyday.entries import single_number, size
from noisewise.everyday.priors import with_given
from noisewise.everyday.written import Written
from noisewise.model import Model
from noisewise.release import Release

WHO = "share_of"


def share_of(
    release: Release,
    count: str,
    *,
    n: int | str | None = None,
    most: int | None = None,
    prior: Mapping[str, Any] | None = None,
) -> Model:
    """The share of yes behind a noisy count: `nw.share_of(release, "yes", n=400)`.

    `count` names the released number of yes. `n` is the number of people asked where it is public, or the name of its
    noisy count; there are then at most `most`. A public one may be left out where the release states it, `described(
    records=400)`.

    Assumed: people are independent and say yes with the same probability, `share`; the count is Binomial(n, share).

    Priors: share ~ Beta(1, 1), all shares alike; a noisy n is uniform on 1, ..., `most`. Change them by
    `prior={"share": dist.Beta(2.0, 8.0)}`, or change `model.code`, the Python that makes the model.
    """
    single_number(WHO, "count", release, count, ("share",))
    number, counted = size(WHO, release, n, most, ("share", count), release[count].about.get("records"))
    laws = with_given(WHO, {"share": "dist.Beta(1.0, 1.0)", **counted}, prior)
    arguments = ", ".join([*counted, "share"])
    statistics = {name: laws[name] for name in counted}
    statistics[count] = f"lambda {arguments}: dist.Binomial({number}, share)"
    return Written({"share": laws["share"]}, statistics, quantity="share").model()
