"""Parameters whose law given everything else is known in closed form, and can be drawn at once.

A family is recognised by the laws involved and by how the parameter enters them, then checked by numbers. Its two
coefficients are read off the joint density itself: in the family's natural coordinate the density's derivative
is A - B x, so two points give A and B, whatever exposures, repeats or further statistics come in. Proof:
docs/derivations/augmentation.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from noisewise.errors import InferenceError
from noisewise.model.entering import entering
from noisewise.model.families import facts_of
from noisewise.model.law import Law
from noisewise.model.total import BoundTotal
from noisewise.numerics import Array, Compiled, Values, namespace
from noisewise.samplers.gibbs.joint import Density, Joint, State


@dataclass(frozen=True)
class ConjugateFamily:
    """Densities exp(int (A - B x) d(natural coordinate)): their name, sampler and normalised form."""

    name: str
    straight: frozenset[str]
    """Operations allowed between parameter and attribute, beside those that move entries about: see `entering`."""
    slope: Callable[[Any, Any], Any]
    """(x, gradient) -> derivative in the natural coordinate."""
    second: Callable[[Any], Any]
    """Another point of the space, well away from a given one; for NumPy and JAX."""
    draw: Callable[[np.random.Generator, Array, Array], Array]
    log_prob: Callable[[Any, Any, Any], Any]
    """(x, A, B) -> normalised log density, summed over entries."""
    proper: Callable[[Array, Array], Array]


STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def log_gamma(x: Any) -> Any:
    """log Gamma(x) for 0 < x < 1e38, by Stirling's series at x + 8: plain arithmetic, faster than JAX's own.

    The first term left out is below 1e-15 from 8 on. Differentiating it gives the digamma function as exactly.
    """
    far = x + 8.0
    inverse = 1.0 / far
    series, power = jnp.zeros_like(far), inverse
    for term in STIRLING:
        series, power = series + term * power, power * inverse * inverse
    shift = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0)
    return (far - 0.5) * jnp.log(far) - far + 0.9189385332046727 + series - jnp.log(shift)


def _draw_normal(rng: np.random.Generator, a: Array, b: Array) -> Array:
    return a / b + rng.standard_normal(a.shape) / np.sqrt(b)


def _draw_dirichlet(rng: np.random.Generator, a: Array, b: Array) -> Array:
    """By the logs of gamma variates: where shapes are small, the variates themselves might all round to zero."""
    shape = a + 1.0
    logs = np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(a.shape)) / shape
    parts = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return parts / parts.sum(axis=-1, keepdims=True)


def _log_normal(x: Any, a: Any, b: Any) -> Any:
    return jnp.sum(0.5 * jnp.log(b / (2 * jnp.pi)) - 0.5 * b * (x - a / b) ** 2)


def _log_dirichlet(x: Any, a: Any, b: Any) -> Any:
    return jnp.sum(a * jnp.log(x)) + jnp.sum(log_gamma(jnp.sum(a + 1.0, axis=-1))) - jnp.sum(log_gamma(a + 1.0))


def _away(x: Any) -> Any:
    """The point half-way to the farthest corner of the simplex."""
    return 0.5 * x + 0.5 * (namespace(x).arange(x.shape[-1]) == x.argmin(axis=-1, keepdims=True))


SCALED = frozenset({"mul", "div"})
GAMMA = ConjugateFamily(
    "Gamma",
    SCALED,
    slope=lambda x, g: x * g,
    second=lambda x: 2.0 * x,
    draw=lambda rng, a, b: rng.standard_gamma(a + 1.0) / b,
    log_prob=lambda x, a, b: jnp.sum(a * jnp.log(x) - b * x + (a + 1.0) * jnp.log(b) - log_gamma(a + 1.0)),
    proper=lambda a, b: (a > -1.0) & (b > 0.0),
)
BETA = ConjugateFamily(
    "Beta",
    frozenset(),
    slope=lambda x, g: x * (1.0 - x) * g,
    second=lambda x: namespace(x).where(x < 0.5, 0.5 * (x + 1.0), 0.5 * x),
    draw=lambda rng, a, b: rng.beta(a + 1.0, b - a + 1.0),
    log_prob=lambda x, a, b: jnp.sum(
        a * jnp.log(x) + (b - a) * jnp.log1p(-x) + log_gamma(b + 2.0) - log_gamma(a + 1.0) - log_gamma(b - a + 1.0)
    ),
    proper=lambda a, b: (a > -1.0) & (b - a > -1.0),
)
NORMAL = ConjugateFamily(
    "Normal",
    SCALED | {"add", "sub", "neg", "add_any"},
    slope=lambda x, g: g,
    second=lambda x: x + 1.0 + abs(x),
    draw=_draw_normal,
    log_prob=_log_normal,
    proper=lambda a, b: b > 0.0,
)
DIRICHLET = ConjugateFamily(
    "Dirichlet",
    frozenset(),
    slope=lambda x, g: x * (g - jnp.sum(x * g, axis=-1, keepdims=True)),
    second=_away,
    draw=_draw_dirichlet,
    log_prob=_log_dirichlet,
    proper=lambda a, b: a > -1.0,
)
FAMILIES = {"Gamma": GAMMA, "Exponential": GAMMA, "Beta": BETA, "Normal": NORMAL, "Dirichlet": DIRICHLET}
"""By the class of the prior. `Facts.conjugate` says which laws, when observed, keep a parameter in its family."""
INSIDE = {
    "Gamma": (1e-250, 1e250),
    "Beta": (1e-6, 1.0 - 1e-6),
    "Normal": (-1e250, 1e250),
    "Dirichlet": (1e-6, 1.0),
}
"""Where coefficients are read off: any point would do but for rounding."""
LARGE = 1e12
"""A coefficient A beyond which rounding would decide: such laws are points, and count as impossible."""


class Conjugate:
    """One parameter drawn from its full conditional law."""

    def __init__(self, joint: Joint, name: str, family: ConjugateFamily) -> None:
        self.joint, self.name, self.family = joint, name, family
        self.target: Density = joint.touching([name])

    def anchor(self, values: Values) -> Array:
        """One value inside the space, the mean over chains: but for rounding, the coefficients do not depend on it."""
        return self._inside(np.mean(values[self.name], axis=0))

    def _inside(self, value: Array) -> Array:
        value = np.clip(value, *INSIDE[self.family.name])
        return value / value.sum(axis=-1, keepdims=True) if self.family is DIRICHLET else value

    def coefficients(
        self, values: Values, records: Any, release: Any, anchor: Any, part: Density | None = None
    ) -> tuple[Any, Any]:
        """A and B of one chain, of the whole density or of some of its factors (they add up); traceable."""
        density = part or self.target

        @jax.jit
        def slope_given(x: Any, values: Any, records: Any, release: Any) -> Any:
            gradient = jax.grad(lambda at: density({**values, self.name: at}, records, release))(x)
            return self.family.slope(x, gradient)

        def slope(x: Any) -> Any:  # traced once, for all places
            return slope_given(x, values, records, release)

        beyond = self.family.second(anchor)
        first, second = slope(anchor), slope(beyond)
        if self.family is DIRICHLET:  # one B for all entries of a simplex
            step = beyond - anchor
            across = jnp.sum((first - second) * step, axis=-1, keepdims=True)
            b = jnp.broadcast_to(across / jnp.sum(step**2, axis=-1, keepdims=True), first.shape)
        else:
            b = (first - second) / (beyond - anchor)
        if self.family is GAMMA:  # read A anew where B x = 1: at a distant anchor, B x would swamp it
            inner = jnp.where(b > 0.0, 1.0 / b, anchor)
            return slope(inner) + b * inner, b
        return first + b * anchor, b

    def prepare(self, state: State) -> None:
        """Begin to compile the program that a step for these chains will run."""
        self._program.prepare(state.values, state.records, self.joint.release, self.anchor(state.values))

    @property
    def _program(self) -> Compiled:
        return self.joint.program(
            ("conjugate", self.name), lambda: jax.vmap(self.coefficients, in_axes=(0, 0, self.joint.axes, None))
        )

    def _solve(self, state: State, anchor: Array) -> tuple[Array, Array]:
        coefficients: tuple[Array, Array] = self.joint.run(
            self._program, state.values, state.records, self.joint.release, anchor
        )
        return coefficients

    def step(self, rng: np.random.Generator, state: State, warm: bool) -> tuple[float, float]:
        """Draw the parameter for every chain: (accepted, tried), equal since all draws are exact."""
        a, b = self._solve(state, self.anchor(state.values))
        if not np.all(self.family.proper(a, b)):
            raise InferenceError(
                f"the law of '{self.name}' given the rest must be a proper {self.family.name} law; its "
                "coefficients are out of range. Check the prior's parameters.",
                who="Augmentation",
            )
        state.values[self.name] = self.family.draw(rng, a, b)
        return float(state.chains), float(state.chains)

    def agrees(self, batches: list[State]) -> bool:
        """Whether the coefficients are the same wherever they are read off.

        For every batch they are read off at the mean of its chains' values, beyond it, and at the least and the largest
        value in all batches: a batch of one chain has but one value of its own.
        """
        values = np.concatenate([state.values[self.name] for state in batches])
        ends = [self._inside(end(values, axis=0)) for end in (np.min, np.max)]
        return all(self._agrees(state, ends) for state in batches)

    def _agrees(self, state: State, ends: list[Array]) -> bool:
        middle = self.anchor(state.values)
        beyond = self._inside(self.family.second(middle))
        a, b = self._solve(state, middle)
        if not np.all(self.family.proper(a, b)):
            return False
        for anchor in (beyond, *ends):
            other, slope = self._solve(state, anchor)
            off = np.abs((other - slope * anchor) - (a - b * anchor))
            if not np.all(off <= 1e-7 * (np.abs(a) + np.abs(b * anchor) + 1.0)):
                return False
        return True


# Recognition ----------------------------------------------------------------------------------------------------------


def family_of(joint: Joint, name: str) -> ConjugateFamily | None:
    """The family of a parameter's full conditional law, by its prior and its children's laws; None if unknown."""
    model = joint.model
    family = FAMILIES.get(model.law(name).form.kind)
    if family is None or joint.readers(name):
        return None
    for child in joint.children(name):
        node = model.node(child)
        if isinstance(node, BoundTotal):
            if name in node.total.arguments or name == node.total.n:
                return None
            children = [law for law in node.laws.values() if name in law.parents]
        elif isinstance(node, Law):
            children = [node]
        else:
            return None
        if not all(_keeps(law, name, family) for law in children):
            return None
    return family


def _keeps(law: Law, name: str, family: ConjugateFamily) -> bool:
    """Whether `name` enters the law through the one attribute allowed, linearly, and nowhere else."""
    conjugate = facts_of(law.form.kind).conjugate
    wanted = next((attribute for attribute, prior in conjugate.items() if prior == family.name), None)
    if wanted is None:
        return False
    ways = entering(law, name, family.straight)
    return all(way == ("linear" if attribute == wanted else "none") for attribute, way in ways.items())
