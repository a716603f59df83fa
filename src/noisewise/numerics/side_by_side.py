"""The generators of several blocks as one: each fills the rows of its own block, by the call it would get alone.

Arithmetic on the rows of several blocks at once costs the interpreter as much as on one, and no row's result depends
on the others. Random numbers stay with their block: which blocks were evaluated together changes none of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise.numerics.namespaces import Array


class SideBySide:
    """Generators of consecutive blocks of `rows` rows, with those methods of a NumPy generator that laws are drawn by.

    Sizes begin with the rows of all blocks together. Arguments with an axis of rows are cut along it, others serve
    every block. A method that is not here is an error: it does not fall back on one of the generators.
    """

    def __init__(
        self, generators: Sequence[np.random.Generator], rows: int, poll: Callable[[], None] = lambda: None
    ) -> None:
        self.generators, self.blocks, self.rows, self.poll = generators, len(generators), rows, poll
        self.parts = [slice(block * rows, (block + 1) * rows) for block in range(self.blocks)]

    def _filled(
        self, method: str, size: Any, kind: Any, *arguments: Any, out: Array | None = None, **settings: Any
    ) -> Array:
        """One call of each generator, all into one array; `arguments` are those that may have an axis of rows."""
        shape = self._checked((size,) if isinstance(size, int) else tuple(size))
        out = np.empty(shape, kind) if out is None else out
        of_one, rank = (self.rows, *shape[1:]), len(shape)
        into = method in _INTO
        for generator, part in zip(self.generators, self.parts, strict=True):
            self.poll()
            cut = [self._cut(argument, rank, part) for argument in arguments]
            if into:
                getattr(generator, method)(*cut, out=out[part])
            else:
                out[part] = getattr(generator, method)(*cut, size=of_one, **settings)
        return out

    def _checked(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape[0] != self.blocks * self.rows:
            raise ValueError(f"{self.blocks} blocks of {self.rows} rows cannot fill an array of shape {shape}")
        return shape

    def _cut(self, argument: Any, rank: int, part: slice) -> Any:
        by_row = getattr(argument, "ndim", 0) == rank and len(argument) == self.blocks * self.rows
        return argument[part] if by_row else argument

    # NumPy's own names and arguments ------------------------------------------------------------------------------

    def random(self, size: Any, out: Array | None = None) -> Array:
        """Uniform variates."""
        return self._filled("random", size, np.float64, out=out)

    def standard_normal(self, size: Any, out: Array | None = None) -> Array:
        """Standard normal variates."""
        return self._filled("standard_normal", size, np.float64, out=out)

    def standard_exponential(self, size: Any, out: Array | None = None) -> Array:
        """Standard exponential variates."""
        return self._filled("standard_exponential", size, np.float64, out=out)

    def standard_gamma(self, shape: Any, size: Any, out: Array | None = None) -> Array:
        """Gamma variates of the given shape parameter."""
        return self._filled("standard_gamma", size, np.float64, shape, out=out)

    def standard_t(self, df: Any, size: Any) -> Array:
        """Student's t variates."""
        return self._filled("standard_t", size, np.float64, df)

    def standard_cauchy(self, size: Any) -> Array:
        """Standard Cauchy variates."""
        return self._filled("standard_cauchy", size, np.float64)

    def laplace(self, size: Any) -> Array:
        """Standard Laplace variates."""
        return self._filled("laplace", size, np.float64)

    def logistic(self, size: Any) -> Array:
        """Standard logistic variates."""
        return self._filled("logistic", size, np.float64)

    def gumbel(self, size: Any) -> Array:
        """Standard Gumbel variates."""
        return self._filled("gumbel", size, np.float64)

    def beta(self, a: Any, b: Any, size: Any) -> Array:
        """Beta variates."""
        return self._filled("beta", size, np.float64, a, b)

    def poisson(self, lam: Any, size: Any = None) -> Array:
        """Poisson variates."""
        return self._filled("poisson", np.shape(lam) if size is None else size, np.int64, lam)

    def binomial(self, n: Any, p: Any, size: Any) -> Array:
        """Binomial variates."""
        return self._filled("binomial", size, np.int64, n, p)

    def geometric(self, p: Any, size: Any) -> Array:
        """Trials up to and with the first success."""
        return self._filled("geometric", size, np.int64, p)

    def integers(self, low: int, high: int, size: Any, dtype: Any) -> Array:
        """Whole numbers from `low` to below `high`."""
        return self._filled("integers", size, dtype, low, high, dtype=dtype)

    def multinomial(self, n: Array, pvals: Array) -> Array:
        """Multinomial variates, one for each entry of `n`."""
        out = np.empty(self._checked(pvals.shape), np.int64)
        for generator, part in zip(self.generators, self.parts, strict=True):
            self.poll()
            out[part] = generator.multinomial(n[part], pvals[part])
        return out


_INTO = ("random", "standard_normal", "standard_exponential", "standard_gamma")
"""Methods that write into an array they are given."""


def blocks_of(rng: Any) -> int:
    """How many blocks a generator's rows belong to."""
    return rng.blocks if isinstance(rng, SideBySide) else 1
