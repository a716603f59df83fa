"""A dict that cannot be changed, for results and releases."""

from typing import Any


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed; it pickles and becomes JSON like any other."""

    def _refuse(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError("This cannot be changed: copy it to a dict of your own first.")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)
