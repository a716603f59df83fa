"""The compiled programs of a NUTS run: a chain's state, its next hundred steps, and its coordinates."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from numpyro.infer.hmc import hmc

from noisewise.inference.conditional.target import Target
from noisewise.model.coordinates import Centring
from noisewise.model.law import KEYS
from noisewise.numerics import Array, Compiled, double
from noisewise.numerics.compiled import AT_ONCE, PLAINLY

PIECE = 100
"""Iterations between two looks at the clock."""
PILOT = 3
"""Pieces of a chain by which its coordinates are chosen: part of a warm-up that is at least twice as long."""
MANY = 4_000
"""Unknowns beyond which starting chains, from many places, takes longer to run than to compile."""
DENSE = 32
"""Unknowns up to which the mass matrix is dense by default."""


class Programs:
    """The compiled programs of a run, kept on the model."""

    def __init__(self, target: Target, dense: bool | None, **options: Any) -> None:
        """`options` as NumPyro's; a `dense` mass matrix is decided by the number of unknowns where it is None."""
        self.target = target
        self.options = options | {"dense_mass": target.size <= DENSE if dense is None else dense}

    def _kernel(self, scaled: Any, key: Any, data: Any, **begin: Any) -> tuple[Any, Any]:
        """NumPyro's state for one chain at the free vector `scaled` times `data["scale"]`, and its step.

        NumPyro draws its mass matrix towards one by an amount that has no unit: an unknown of size 1e-6 would be given
        steps of a thousand times its size.
        """

        def potential(data: Any) -> Callable[[Any], Any]:
            energy = self.target.potential(data["target"])
            return lambda scaled: energy(scaled * data["scale"])

        start, step = hmc(potential_fn_gen=potential, algo="NUTS")
        state = start(
            scaled,
            trajectory_length=None,
            rng_key=jax.random.wrap_key_data(key, impl=KEYS),
            model_args=(data,),
            **begin,
            **self.options,
        )
        return state, lambda before: step(before, (data,))

    def prepare(self, data: Any, chains: int, finished: int) -> None:
        """Compile the programs of the run, in threads of their own: pieces of chains first, which take longest.

        `finished` is how many rows `finish` is given at a time.
        """
        free, starts = _numbers(self.target.size), _numbers(chains, self.target.size)
        keys, given = jax.ShapeDtypeStruct((chains, 2), np.uint32), {"target": data, "scale": free}
        begin = self._program("start", lambda: partial(self._states))
        with double():
            states = begin.shapes(starts, keys, free, given)
        state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states)
        handed_over = self._program("advance", lambda: partial(self._piece)).prepare(state, given)
        handed_over = begin.prepare(starts, keys, free, given, after=handed_over)
        uniform = [_numbers(finished, entries) for entries in self.target.uniforms]
        handed_over = self._finish.prepare(_numbers(finished, self.target.size), data, uniform, after=handed_over)
        if self.target.located:
            walked = chains * PIECE
            stood = self._standing.prepare(_numbers(walked * (PILOT - 1), self.target.size), data, after=handed_over)
            self._moved.prepare(_numbers(walked, self.target.size), data, data["centring"], after=stood)

    def start(self, free: Array, keys: Array, variances: Array, data: Any) -> list[Any]:
        """The states of chains (rows) whose mass matrix begins with these variances of the free vector over its scale.

        All chains start in one call: a start takes a hundred steps of the program, and a call costs as much again.
        """
        states = jax.tree.map(
            np.asarray, self._program("start", lambda: partial(self._states))(free, keys, variances, data)
        )
        return [jax.tree.map(lambda leaf, chain=chain: leaf[chain], states) for chain in range(len(free))]

    def _states(self, free: Any, keys: Any, variances: Any, data: Any) -> Any:
        def begun(pair: Any) -> Any:
            return _plain(self._kernel(pair[0] / data["scale"], pair[1], data, inverse_mass_matrix=variances)[0])

        return jax.lax.map(begun, (free, keys))

    def advance(self, state: Any, data: Any) -> tuple[Any, dict[str, Any]]:
        """A piece of a chain: (the state after it, what happened in each iteration)."""
        result: tuple[Any, dict[str, Any]] = self._program("advance", lambda: partial(self._piece))(state, data)
        return result

    def _piece(self, state: Any, data: Any) -> Any:
        _, step = self._kernel(state.z, state.rng_key, data)  # sets up the step; its own start is not used

        def iterate(carry: Any, _: Any) -> Any:
            new = step(carry)
            seen = {"free": new.z * data["scale"], "steps": new.num_steps, "diverging": new.diverging}
            return new, seen | {"accept": new.accept_prob}

        last, seen = jax.lax.scan(iterate, _keyed(state), None, length=PIECE)
        return _plain(last), seen

    def free(self, rows: dict[str, Array], data: Any) -> Array:
        """Free vectors of rows of values."""
        own = self._program("free", lambda: jax.vmap(self.target.free_from, in_axes=(0, None)))
        return np.asarray(own(rows, data["centring"]))

    def energies(self, free: Array, data: Any, chains: int) -> Array:
        """Minus the log density at free vectors: as of chains that start there, so many `chains` at a time.

        A program for energies alone would take longer to compile than this.
        """
        ones, keys = np.ones(self.target.size), np.zeros((chains, 2), np.uint32)
        given = {"target": data, "scale": ones}
        states = [self.start(some, keys, ones, given) for some in np.split(free, len(free) // chains)]
        return np.array([float(state.potential_energy) for some in states for state in some])

    def standing(self, free: Array, data: Any) -> dict[str, Any]:
        """`Target.standing`, row by row."""
        return self._standing(free, data)

    @property
    def _standing(self) -> Compiled:
        return self._program("standing", lambda: jax.vmap(self.target.standing, in_axes=(0, None)))

    def moved(self, free: Array, data: Any, centring: Centring) -> Array:
        """Rows of free vectors in other coordinates."""
        return self._moved(free, data, centring)

    @property
    def _moved(self) -> Compiled:
        def move(free: Any, data: Any, centring: Centring) -> Any:
            return self.target.free_from(self.target.values(free, data), centring)

        return self._program("moved", lambda: jax.vmap(move, in_axes=(0, None, None)))

    def finish(self, *arguments: Any) -> Any:
        """`Target.finish`, row by row."""
        return self._finish(*arguments)

    @property
    def _finish(self) -> Compiled:
        return self._program("finish", lambda: jax.vmap(self.target.finish, in_axes=(0, None, 0)))

    def _program(self, purpose: str, build: Callable[[], Any]) -> Compiled:
        key = ("nuts", purpose, self.target.signature, tuple(sorted(self.options.items())))
        brief = purpose not in ("advance", "finish") and self.target.size <= MANY
        options = AT_ONCE if brief else PLAINLY
        return self.target.model.compiled.setdefault(key, Compiled(build, options=options))


def _numbers(*shape: int) -> jax.ShapeDtypeStruct:
    """Shape and type of an array of numbers, for compiling a program before its arguments are there."""
    return jax.ShapeDtypeStruct(shape, np.float64)


def _plain(state: Any) -> Any:
    """A state whose random keys are plain arrays, so that a program can return it."""
    adapt = state.adapt_state._replace(rng_key=jax.random.key_data(state.adapt_state.rng_key))
    return state._replace(rng_key=jax.random.key_data(state.rng_key), adapt_state=adapt)


def _keyed(state: Any) -> Any:
    """The inverse of `_plain`."""
    wrap = partial(jax.random.wrap_key_data, impl=KEYS)
    return state._replace(
        rng_key=wrap(state.rng_key), adapt_state=state.adapt_state._replace(rng_key=wrap(state.adapt_state.rng_key))
    )
