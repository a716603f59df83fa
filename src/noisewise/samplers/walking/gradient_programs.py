"""The compiled programs of a NUTS run: a chain's state, its next hundred steps, and its coordinates."""

import threading
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
MANY = 4_000
"""Unknowns beyond which the start of a chain, tried at many places, takes longer to run than to compile."""
DENSE = 32
"""Unknowns up to which the mass matrix is dense by default."""


class Programs:
    """The compiled pieces of a run, kept on the model."""

    def __init__(self, target: Target, dense: bool | None, **options: Any) -> None:
        """`options` as NumPyro's; a `dense` mass matrix is decided by the number of unknowns where it is None."""
        self.target = target
        self.lock, self.ready = threading.Lock(), set[str]()
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

    def prepare(self, data: Any) -> None:
        """Compile a chain's start and its pieces, each in a thread of its own, while other things are done."""
        size = jax.ShapeDtypeStruct((self.target.size,), np.float64)
        key, data = jax.ShapeDtypeStruct((2,), np.uint32), {"target": data, "scale": size}
        start = self._program("start", lambda: partial(self._state))
        with double():
            state = start.shapes(size, key, size, data)
        advanced = self._program("advance", lambda: partial(self._piece)).prepare(state, data)
        start.prepare(size, key, size, data, after=advanced)

    def start(self, free: Array, key: Array, variances: Array, data: Any) -> Any:
        """The state of a chain whose mass matrix begins with these variances of the free vector over its scale."""
        return self._once("start", lambda: partial(self._state), free, key, variances, data)

    def _state(self, free: Any, key: Any, variances: Any, data: Any) -> Any:
        return _plain(self._kernel(free / data["scale"], key, data, inverse_mass_matrix=variances)[0])

    def advance(self, state: Any, data: Any) -> tuple[Any, dict[str, Any]]:
        """A piece of a chain: (the state after it, what happened in each iteration)."""
        return self._once("advance", lambda: partial(self._piece), state, data)

    def _piece(self, state: Any, data: Any) -> Any:
        _, step = self._kernel(state.z, state.rng_key, data)  # sets up the step; its own start is not used

        def iterate(carry: Any, _: Any) -> Any:
            new = step(carry)
            seen = {"free": new.z * data["scale"], "steps": new.num_steps, "diverging": new.diverging}
            return new, seen | {"accept": new.accept_prob}

        last, seen = jax.lax.scan(iterate, _keyed(state), None, length=PIECE)
        return _plain(last), seen

    def energies(self, rows: dict[str, Array], data: Any) -> tuple[Array, Array]:
        """Free vectors of rows of values, and minus the log density there: that of a chain which begins there.

        A program of their own would take as long to compile as they take to compute, and longer.
        """
        own = self._program("free", lambda: jax.vmap(self.target.free_from, in_axes=(0, None)))
        free = np.asarray(own(rows, data["centring"]))
        ones, key = np.ones(self.target.size), np.zeros(2, np.uint32)
        given = {"target": data, "scale": ones}
        return free, np.array([float(self.start(one, key, ones, given).potential_energy) for one in free])

    def standing(self, free: Array, data: Any) -> dict[str, Any]:
        """`Target.standing`, row by row."""
        return self._program("standing", lambda: jax.vmap(self.target.standing, in_axes=(0, None)))(free, data)

    def moved(self, free: Array, data: Any, centring: Centring) -> Array:
        """Rows of free vectors in other coordinates."""

        def move(free: Any, data: Any, centring: Centring) -> Any:
            return self.target.free_from(self.target.values(free, data), centring)

        return self._program("moved", lambda: jax.vmap(move, in_axes=(0, None, None)))(free, data, centring)

    def finish(self, *arguments: Any) -> Any:
        """`Target.finish`, row by row."""
        return self._program("finish", lambda: jax.vmap(self.target.finish, in_axes=(0, None, 0)))(*arguments)

    def _once(self, purpose: str, build: Callable[[], Any], *arguments: Any) -> Any:
        """Run a program that several threads ask for at the same time, and that one of them shall compile."""
        program = self._program(purpose, build)
        if purpose in self.ready:
            return program(*arguments)
        with self.lock:
            result = program(*arguments)
            self.ready.add(purpose)
        return result

    def _program(self, purpose: str, build: Callable[[], Any]) -> Compiled:
        key = ("nuts", purpose, self.target.signature, tuple(sorted(self.options.items())))
        brief = purpose not in ("advance", "finish") and self.target.size <= MANY
        options = AT_ONCE if brief else PLAINLY
        return self.target.model.compiled.setdefault(key, Compiled(build, options=options))


def _plain(state: Any) -> Any:
    """A state whose random keys are plain arrays, to leave a program with."""
    adapt = state.adapt_state._replace(rng_key=jax.random.key_data(state.adapt_state.rng_key))
    return state._replace(rng_key=jax.random.key_data(state.rng_key), adapt_state=adapt)


def _keyed(state: Any) -> Any:
    """The inverse of `_plain`."""
    wrap = partial(jax.random.wrap_key_data, impl=KEYS)
    return state._replace(
        rng_key=wrap(state.rng_key), adapt_state=state.adapt_state._replace(rng_key=wrap(state.adapt_state.rng_key))
    )
