"""Axes of arrays: their names (`dims`), and the labels along them (`coords`)."""

import datetime
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from noisewise import checks
from noisewise.errors import Place, refusal
from noisewise.frozen import FrozenDict

Label = str | int
Coords = Mapping[str, tuple[Label, ...]]
"""The labels along each axis, by its name and in the order of the axes."""
EXAMPLE = 'Give coords={"county": ["Bronx", "Kings"]}, one list of labels for each axis, in order.'


@dataclass(frozen=True)
class Axes:
    """The named axes and the labels of several arrays; along an axis without labels, entries go by their numbers."""

    dims: Mapping[str, tuple[str, ...]] = field(default_factory=FrozenDict)
    """The names of the axes, for each array whose axes have names."""
    coords: Coords = field(default_factory=FrozenDict)
    """Labels along the axes that have them, the same in every array."""

    @classmethod
    def of(cls, who: str, dims: Any, coords: Any, shapes: Mapping[str, Sequence[int]]) -> Self:
        """Axes of arrays of the given shapes; refused where names, labels and shapes do not agree."""
        if not isinstance(dims, Mapping):
            raise refusal(who, "dims", "must be a dict of names", dims, 'Give dims={"rate": ("county",)}.')
        if not isinstance(coords, Mapping):
            raise refusal(who, "coords", "must be a dict of labels by axis", coords, EXAMPLE)
        named = {name: _axes_of(who, name, axes, shapes) for name, axes in dims.items()}
        lengths: dict[str, tuple[str, int]] = {}
        for name, axes in named.items():
            for axis, length in zip(axes, shapes[name], strict=True):
                first, known = lengths.setdefault(axis, (name, length))
                if known != length:
                    rule = f"must be as long along '{axis}' as '{first}', {known} entries"
                    raise refusal(who, name, rule, length, "Give another name to an axis of other entries.")
        for axis in coords:
            if axis not in lengths:
                advice = checks.nearest(axis, lengths) + " Name it in dims."
                raise refusal(who, "coords", "must be of axes that some name has", axis, advice)
        labels = {axis: labels_along(who, axis, labels, lengths[axis][1]) for axis, labels in coords.items()}
        return cls(FrozenDict(named), FrozenDict(labels))

    def only(self, names: Iterable[str]) -> "Axes":
        """The axes and the labels of these arrays only."""
        dims = {name: self.dims[name] for name in names if name in self.dims}
        used = {axis for axes in dims.values() for axis in axes}
        return Axes(FrozenDict(dims), FrozenDict({axis: self.coords[axis] for axis in self.coords if axis in used}))

    def place(self, name: str, index: Sequence[int]) -> tuple[Label, ...]:
        """The labels of one entry; its number along an axis without labels."""
        axes = self.dims.get(name, ())
        if not axes:
            return tuple(index)
        return tuple(self.coords[axis][i] if axis in self.coords else i for axis, i in zip(axes, index, strict=True))

    def taken(self, who: str, name: str, array: Any, first: int, chosen: Mapping[str, Any]) -> Any:
        """Entries of an array by label: one label drops its axis, a list of labels keeps it.

        The array's axes begin at axis `first`.
        """
        axes = self.dims.get(name, ())
        for axis, wanted in chosen.items():
            checks.known_name(who, axis, axis, axes, f"must be an axis of '{name}'")
            labels: Sequence[Label] = self.coords.get(axis, range(array.shape[first + axes.index(axis)]))
            many = not isinstance(wanted, str) and isinstance(wanted, Iterable)
            positions = [_position(who, axis, label, labels) for label in (wanted if many else [wanted])]
            array = np.take(array, positions, axis=first + axes.index(axis))
        single = [a for a in chosen if isinstance(chosen[a], str) or not isinstance(chosen[a], Iterable)]
        return np.squeeze(array, axis=tuple(first + axes.index(axis) for axis in single))


def coordinates(who: str, coords: Any, shape: Sequence[int]) -> FrozenDict:
    """Labels for every axis of one array of the given shape."""
    if not isinstance(coords, Mapping):
        raise refusal(who, "coords", "must be a dict of labels by axis", coords, EXAMPLE)
    if len(coords) != len(shape):
        rule = f"must name each axis of the value, {len(shape)} in number"
        raise refusal(who, "coords", rule, list(coords), EXAMPLE if len(shape) else "A single number has none.")
    for axis in coords:
        checks.name(who, "coords", axis)
    pairs = zip(coords.items(), shape, strict=True)
    return FrozenDict({axis: labels_along(who, axis, labels, length) for (axis, labels), length in pairs})


def labels_along(who: str, axis: str, labels: Any, length: int) -> tuple[Label, ...]:
    """One label for each of `length` entries: words, or whole numbers; dates are written as 2026-03-01."""
    place = f"coords['{axis}']"
    if isinstance(labels, (str, Set)) or not isinstance(labels, Iterable):
        raise refusal(who, place, "must be a list of labels", labels, EXAMPLE)
    checked = tuple(labels)
    if not _plain(checked):
        checked = tuple(_label(who, place, label) for label in checked)
    if len(checked) != length:
        rule = f"must have one label for each entry along '{axis}', {length} in number"
        raise refusal(who, place, rule, len(checked), "Give the labels in the order of the entries.")
    if len({type(label) for label in checked}) > 1:
        odd = next(label for label in checked if type(label) is not type(checked[0]))
        raise refusal(who, place, "must be words, or whole numbers, not both", odd, "Write every label alike.")
    seen: set[Label] = set()
    for label in checked:
        if label in seen:
            raise refusal(who, place, "must not hold a label twice", label, "Each entry has a label of its own.")
        seen.add(label)
    return checked


def apart(who: str, value: Any, coords: Any) -> tuple[Any, Any]:
    """`value` and its labels, apart: those of a pandas Series or DataFrame or an xarray DataArray, else `coords`."""
    own: Any = None
    pandas, xarray = sys.modules.get("pandas"), sys.modules.get("xarray")
    if pandas is not None and isinstance(value, pandas.Series):
        value, own = _series(who, value)
    elif pandas is not None and isinstance(value, pandas.DataFrame):
        value, own = _frame(who, value)
    elif xarray is not None and isinstance(value, xarray.DataArray):
        value, own = _data_array(who, value)
    if own and coords:
        raise refusal(
            who, "coords", "must be left out where the value has labels", list(coords), "Drop one of the two."
        )
    return value, coords or own or {}


def _axes_of(who: str, name: Any, axes: Any, shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    checks.known_name(who, "dims", name, shapes, "must name parameters or statistics")
    place, number = Place.of("dims", name), len(shapes[name])
    advice = 'Give dims={"rate": ("county",)}, a name for each axis.'
    if not isinstance(axes, (list, tuple)) or len(axes) != number or len(set(axes)) < number:
        raise refusal(who, place, f"must be a tuple of {number} different names, one for each axis", axes, advice)
    for axis in axes:
        checks.name(who, place, axis)
        if axis in shapes:
            rule = "must not name an axis like a parameter or statistic"
            advice = "Rename one of them; a released value's axes are renamed by with_coords."
            raise refusal(who, place, rule, axis, advice)
    return tuple(axes)


def _plain(labels: tuple[Any, ...]) -> bool:
    """Whether the labels are plainly valid, so that none needs a check of its own: there may be millions."""
    kinds = set(map(type, labels))
    return kinds == {int} or (kinds == {str} and "" not in labels and "".join(labels).isprintable())


def _label(who: str, place: str, label: Any) -> Label:
    if isinstance(label, str):
        text = str(label)
        if not text or not all(map(_shown, text)):
            raise refusal(who, place, "must be words that can be printed", text, "Write each label out.")
        return text
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool):
        return int(label)
    if isinstance(label, np.datetime64) and not np.isnat(label):
        label = label.astype("datetime64[us]").item()
    if isinstance(label, datetime.date) and label == label:  # pandas.NaT is a date that does not equal itself
        return iso_form(label)
    advice = "Write it as a word, or leave the entry out." if label != label or label is None else "Write it as a word."
    raise refusal(who, place, "must be words, whole numbers or dates", label, advice)


def iso_form(day: datetime.date) -> str:
    """A date or a time in ISO form; midnight of a date is that date."""
    return day.isoformat().removesuffix("T00:00:00")


def _shown(character: str) -> bool:
    """Whether a label may hold this character: a printable one, a joiner or a space that does not break.

    Persian and Indic words need the joiners. What moves a cursor, ends a line or turns the direction of writing is out.
    """
    return character.isprintable() or character in "\u00a0\u200c\u200d\u202f"


def _position(who: str, axis: str, label: Any, labels: Sequence[Label]) -> int:
    wanted = _label(who, axis, label)
    try:
        return labels.index(wanted)
    except ValueError:
        advice = checks.nearest(wanted, map(str, labels))
        raise refusal(who, axis, "must be a label of this axis", wanted, advice) from None


def _series(who: str, series: Any) -> tuple[Any, dict[str, Any] | None]:
    """The values of a Series, and the labels of its index by axis; an unnamed index 0, 1, ... gives no labels.

    An index of several levels must hold every combination of their labels.
    """
    import pandas as pd

    index, values = series.index, series.to_numpy()
    if index.nlevels == 1:
        if index.name is None and index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index))):
            return values, None
        levels = [index]
    else:
        levels = [index.get_level_values(level) for level in range(index.nlevels)]
    advice = 'Name it: series.rename_axis("county"); or drop it: series.reset_index(drop=True).'
    for level in levels:
        if not isinstance(level.name, str):
            raise refusal(who, "value", "must name the axes of its index", level.name, advice)
    if len({level.name for level in levels}) < len(levels):
        raise refusal(who, "value", "must name the axes of its index differently", list(index.names), advice)
    if len(levels) == 1:
        return values, {index.name: list(index)}
    if index.has_duplicates:
        repeated = _named(index[index.duplicated()])
        raise refusal(who, "value", "must have each combination of labels once", repeated, "Drop one of the two.")
    along = {level.name: list(level.unique()) for level in levels}
    full = pd.MultiIndex.from_product(list(along.values()), names=list(along))
    if len(full) != len(index):
        absent = _named(full[~full.isin(index)])
        advice = "Give every entry; where one was withheld, see nw.mechanisms.Thresholded."
        raise refusal(who, "value", "must have every combination of labels; one is missing", absent, advice)
    return series.reindex(full).to_numpy().reshape([len(labels) for labels in along.values()]), along


def _frame(who: str, frame: Any) -> tuple[Any, dict[str, Any]]:
    """The values of a DataFrame, and the labels of its rows and columns, both of which must name their axis."""
    if frame.index.nlevels > 1 or frame.columns.nlevels > 1:
        advice = "Give frame.stack(), a Series with a level for each axis."
        raise refusal(who, "value", "must have one level of rows and one of columns", "several levels", advice)
    for axis in (frame.index, frame.columns):
        if not isinstance(axis.name, str):
            advice = 'Name both: frame.rename_axis(index="county", columns="sex").'
            raise refusal(who, "value", "must name the axes of its rows and columns", axis.name, advice)
    return frame.to_numpy(), {frame.index.name: list(frame.index), frame.columns.name: list(frame.columns)}


def _named(index: Any) -> dict[str, Any]:
    """The labels of the first entry of an index of several levels, by the names of the levels."""
    first = (label.item() if isinstance(label, np.generic) else label for label in index[0])
    return dict(zip(index.names, first, strict=True))


def _data_array(who: str, array: Any) -> tuple[Any, dict[str, Any] | None]:
    for axis in array.dims:
        if axis not in array.coords:
            advice = f"Label it: array.assign_coords({axis}=[...]), or give array.values with coords."
            raise refusal(who, "value", "must have labels along each axis", axis, advice)
    return array.values, {str(axis): list(array.coords[axis].values) for axis in array.dims} or None
