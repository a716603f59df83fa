"""The base class of mechanisms that wrap another one: what they take over from it."""

from noisewise.mechanisms.base import Measure, Mechanism, Supremum


class Wrapper(Mechanism):
    """Base of mechanisms that wrap another one, `base`, whose inputs, measure and kind of supremum they take over."""

    base: Mechanism

    @property
    def inputs(self) -> tuple[str, ...]:
        """Further confidential values that `base` reads."""
        return self.base.inputs

    @property
    def integers(self) -> bool:
        """Whether `base` needs whole confidential values."""
        return self.base.integers

    @property
    def measure(self) -> Measure:
        """That of `base`."""
        return self.base.measure

    @property
    def supremum(self) -> Supremum:
        """As for `base`."""
        return self.base.supremum

    def misfit(self, released: tuple[int, ...], confidential: tuple[int, ...]) -> str | None:
        """As for `base`."""
        return self.base.misfit(released, confidential)
