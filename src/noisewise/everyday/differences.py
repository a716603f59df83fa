"""Two groups compared."""

from noisewise import checks
from noisewise.errors import refusal
from noisewise.everyday.written import Code, Written
from noisewise.model import Model

WHO = "difference"


def difference(**groups: Model) -> Model:
    """How much the first of two groups exceeds the second, in mean or share.

    `nw.difference(treated=nw.share_of(release, "events_treated", n=210), control=nw.share_of(...))`: each group is a
    model by `nw.mean_of` or `nw.share_of`, both of one kind. The parameters of a group get its name, `share_treated`,
    and `difference` is `share_treated - share_control`, in every posterior of the model.

    Assumed: what the two models assume, and that no person is in both groups: groups are independent given their own
    parameters, whose priors are independent too.
    """
    example = 'Give nw.difference(treated=nw.share_of(release, "yes", n=210), control=...).'
    if len(groups) != 2:
        raise refusal(WHO, "groups", "must be two", list(groups), example)
    parts: dict[str, Written] = {}
    for name, model in groups.items():
        checks.name(WHO, "groups", name)
        code = model.code if isinstance(model, Model) else ""
        if not isinstance(code, Code) or not code.parts.quantity:
            raise refusal(WHO, name, "must be a model by mean_of or share_of", model, example)
        parts[name] = code.parts
    first, second = parts.values()
    if first.quantity != second.quantity:
        kinds = [first.quantity, second.quantity]
        raise refusal(WHO, "groups", "must be two means, or two shares", kinds, "Compare like with like.")
    shared = [name for name in first.statistics if name in second.statistics and name not in first.own]
    if shared:
        advice = "Each group needs entries of its own; a number of records too."
        raise refusal(WHO, "groups", "must not read the same entry", shared[0], advice)
    one, other = (part.renamed(name) for name, part in parts.items())
    for name in (*one.prior, *other.prior):
        if name in first.statistics or name in second.statistics:
            advice = f"Name the groups otherwise, or rename the entry: nw.Release(published_{name}=release['{name}'])."
            raise refusal(WHO, "groups", "must not give a parameter the name of a released entry", name, advice)
    subtracted = f"lambda {one.quantity}, {other.quantity}: {one.quantity} - {other.quantity}"
    return Written(
        {**one.prior, **other.prior},
        {**one.statistics, **other.statistics},
        derived={"difference": subtracted},
    ).model()
