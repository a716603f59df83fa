"""What a mechanism around another one takes from it."""

from noisewise.mechanisms.base import Measure, Mechanism, Supremum


class Wrapper(Mechanism):
    """Base of mechanisms around another one, `base`: they read and need what `base` does, and have its kind of law."""

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
