"""Independent mechanisms over the entries of a vector."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise.errors import InputError, refusal
from noisewise.mechanisms.additive import Additive
from noisewise.mechanisms.base import MECHANISM, Measure, Mechanism, Supremum
from noisewise.mechanisms.guarantee import Guarantee
from noisewise.mechanisms.processed import shapes, weakest
from noisewise.mechanisms.wrapper import Wrapper
from noisewise.numerics import namespace


class Product(Mechanism):
    """Entry i of the last axis is released by `parts[i]`, independently of the others.

    Density: one per entry, that of its part; the vector's is their product. Mixed where the parts' measures differ.
    Calibration: none of its own. If all parts state a pure epsilon for the same neighbours, their sum is the guarantee
    (basic composition; Dwork and Roth 2014, Theorem 3.14); otherwise none is claimed here.
    Sampler: each part's own, one after the other from the same generator.
    Supremum: each part's own; each depends on its own entry only, so the product's is the product of them.
    """

    fields = ("parts",)
    arguments = {"parts": {"type": "array", "items": MECHANISM, "minItems": 1}}
    alternatives = (("parts",),)
    parts: tuple[Mechanism, ...]

    def __init__(self, parts: Sequence[Mechanism]) -> None:
        advice = "Give a list such as [Laplace(scale=1.0), Gaussian(scale=2.0)], one mechanism per entry."
        if not isinstance(parts, (list, tuple)) or not parts:
            raise refusal("Product", "parts", "must be a non-empty list of mechanisms", parts, advice)
        for index, part in enumerate(parts):
            if not isinstance(part, Mechanism):
                raise refusal("Product", f"parts[{index}]", "must be a mechanism", part, advice)
            if part.event_dim:
                rule = "must act on a single number; this one acts on vectors"
                raise refusal("Product", f"parts[{index}]", rule, part, "Give vectors as statistics of their own.")
            noise = isinstance(part, (Additive, Wrapper))
            if isinstance(part, Product) or part.misfit((), ()) or (noise and any(shape for _, shape in shapes(part))):
                rule = "must act on a single number, with single numbers as parameters"
                raise refusal("Product", f"parts[{index}]", rule, part, "Give one mechanism per entry.")
        self._freeze(_guarantee(parts), parts=tuple(parts))

    @property
    def measure(self) -> Measure:
        """The parts' common measure, or mixed."""
        kinds = {part.measure for part in self.parts}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def supremum(self) -> Supremum:
        """The weakest of the parts' claims."""
        return weakest(*(part.supremum for part in self.parts))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Further confidential values that the parts read."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.inputs))

    @property
    def integers(self) -> bool:
        """Whether some part needs whole numbers: a statistic's entries are of one kind."""
        return any(part.integers for part in self.parts)

    def sample(self, rng: np.random.Generator, confidential: Any, **inputs: Any) -> Any:
        """Simulated release; not for publishing (see `Mechanism.sample`)."""
        confidential = np.asarray(confidential)
        return np.stack(
            self._by_part(lambda part, index, own: part.sample(rng, confidential[..., index], **own), inputs), -1
        )

    def log_prob(self, released: Any, confidential: Any, **inputs: Any) -> Any:
        """log density of each entry."""
        xp = namespace(released, confidential, inputs, self)
        released, confidential = xp.asarray(released), xp.asarray(confidential)
        return xp.stack(
            self._by_part(
                lambda part, index, own: part.log_prob(released[..., index], confidential[..., index], **own), inputs
            ),
            -1,
        )

    def log_sup(self, released: Any) -> Any:
        """Supremum of each entry."""
        xp = namespace(released, self)
        released = xp.asarray(released)
        return xp.stack(self._by_part(lambda part, index, own: part.log_sup(released[..., index]), {}), -1)

    def _by_part(self, action: Callable[[Any, int, dict[str, Any]], Any], inputs: dict[str, Any]) -> list[Any]:
        """`action` for each part, with the inputs it reads."""
        return [
            action(part, index, {name: inputs[name] for name in part.inputs if name in inputs})
            for index, part in enumerate(self.parts)
        ]

    # Released values ---------------------------------------------------------------------------------------------

    def check_released(self, value: Any) -> Any:
        """Numbers (or what a part takes in place of one), each as its part checks it."""
        entries = self._entries(value)
        checked = []
        for index, part in enumerate(self.parts):
            try:
                checked.append(np.asarray(part.check_released(entries[..., index].tolist()), dtype=float))
            except InputError as error:
                raise error.within(f"Product.released: entry {index}") from None
        array = np.stack(checked, -1)
        array.flags.writeable = False
        return array

    def _entries(self, value: Any) -> Any:
        """`value` as an array of objects with one entry per part along the last axis."""
        who, rule = "Product.released", f"must have {len(self.parts)} entries along its last axis, one per part"
        try:
            entries = np.array(value, dtype=object)
        except ValueError:
            raise refusal(who, "value", rule, value, "Give rows of equal length.") from None
        if entries.shape[-1:] != (len(self.parts),):
            raise refusal(who, "value", rule, value, "Check the parts.")
        return entries

    def encode(self, value: Any) -> Any:
        """Each entry as its part writes it."""
        return self._recoded(np.asarray(value), "encode")

    def decode(self, entry: Any) -> Any:
        """Each entry as its part reads it."""
        return self._recoded(self._entries(entry), "decode")

    def _recoded(self, entries: Any, method: str) -> Any:
        recoded = np.empty(entries.shape, dtype=object)
        for index, part in enumerate(self.parts):
            column = entries[..., index]
            values = getattr(part, method)(column if method == "encode" else column.tolist())
            recoded[..., index] = np.array(values, dtype=object)
        return recoded.tolist()


def _guarantee(parts: Sequence[Mechanism]) -> Guarantee | None:
    """The sum of the parts' epsilons; None unless all are pure and agree in their neighbours and dimension."""
    total = 0.0
    frames = set()
    for part in parts:
        guarantee = part.guarantee
        if guarantee is None or guarantee.epsilon is None or guarantee.kind != "pure":
            return None
        total += guarantee.epsilon
        frames.add(replace(guarantee, epsilon=None, sensitivity=None, norm=None))
    return replace(frames.pop(), epsilon=total) if len(frames) == 1 else None
