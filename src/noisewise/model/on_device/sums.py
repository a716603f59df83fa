"""Totals drawn by their own law inside a compiled program: the cases of `model.sums`. docs/derivations/totals.md.

Only in double precision: laws of sums have large rates and counts, which 32 bits do not tell apart.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import random

from noisewise.model.law import Law, law_attributes
from noisewise.model.on_device.poisson import MOST_RATE
from noisewise.model.on_device.variates import DRAWS, RULES
from noisewise.model.sums import Added, KnownSum, Scattered, Tallied
from noisewise.model.sums.added import ADD_UP, PLACES

CHANCES: dict[str, Callable[[Any], Any]] = {
    "logit": jax.nn.sigmoid,
    "logits": jax.nn.softmax,
    **dict.fromkeys(("probability", "chance"), lambda value: jnp.clip(value, 0.0, 1.0)),
}
"""How attributes of these rules become probabilities; rounding errors are clipped."""

Columns = dict[str, Any]
Drawn = tuple[Any, Any]


def draw_known(known: KnownSum, key: Any, values: Columns, n: Any) -> Drawn:
    """A total of `n` records for each row, and in which rows all parameters obey their rules."""
    ways: dict[type, Callable[..., Drawn]] = {Added: _added, Scattered: _scattered, Tallied: _tallied}
    return ways[type(known)](known, key, values, jnp.asarray(n))


def _lowered(law: Law, values: Columns, records: Columns, rows: int) -> tuple[Columns, Any]:
    """Attributes by row and record, with probabilities in place of logits; and where they obey their rules."""
    outer = {name: values[name] for name in law.outer}
    inner = {name: records[name] for name in law.inner}

    def of_row(outer: Columns, inner: Columns) -> Columns:
        return jax.vmap(lambda record: law_attributes(law.function(**outer, **record)), axis_size=_count(records))(
            inner
        )

    lowered = jax.vmap(of_row, axis_size=rows)(outer, inner)
    assert law.form.variate is not None
    good, attributes = jnp.ones((rows, _count(records)), bool), {}
    for name, rule in law.form.variate.rules.items():
        good &= jnp.all(RULES[rule](lowered[name]).reshape(*good.shape, -1), axis=-1)
        attributes[name] = CHANCES.get(rule, lambda value: value)(lowered[name])
    return attributes, good


def _count(records: Columns) -> int:
    return next(iter(records.values())).shape[1] if records else 1


def _added(known: Added, key: Any, values: Columns, n: Any) -> Drawn:
    rows, good, sums = len(n), n >= 0, Columns()
    for number, (field, law) in enumerate(known.summand.laws.items()):
        at = {name: jnp.stack([sums[name], jnp.zeros_like(sums[name])], axis=1) for name in law.inner}
        attributes, fine = _lowered(law, values, at, rows)
        good &= jnp.all(fine, axis=1)
        size = n.reshape((rows,) + (1,) * len(law.form.batch))
        for name, value in attributes.items():
            wide = size[..., None] if law.form.kind == "MultivariateNormal" else size
            last = value[:, -1]
            attributes[name] = value[:, 0] + (wide - 1) * last if name in PLACES else value[:, 0]
        most = {"rate": law.form.kind == "Poisson", "total_count": True}
        for name in (name for name, counts in most.items() if counts and name in attributes):
            within = size.astype(float) * attributes[name] < MOST_RATE
            good &= jnp.all(within.reshape(rows, -1), axis=1)
        sums[field] = _drawn(law, random.fold_in(key, number), *ADD_UP[law.form.kind](attributes, size), size)
    arguments = {name: {**values, **sums}[name] for name in known.summand.arguments}
    return jax.vmap(known.of_row)(arguments, n), good


def _drawn(law: Law, key: Any, kind: str, attributes: Any, size: Any) -> Any:
    """Variates of the law of a field's sum; 0 where there are no records."""
    shape = (len(size), *law.form.batch)
    counts = {name: value if name == "total_count" else jnp.asarray(value, float) for name, value in attributes.items()}
    axes = {"probs": 1, "loc": 1, "scale_tril": 2} if kind.startswith("Multi") else {}
    wide = {
        name: jnp.broadcast_to(value, shape + value.shape[value.ndim - axes.get(name, 0) :] if name in axes else shape)
        for name, value in counts.items()
    }
    drawn = DRAWS[kind](key, shape, **wide).astype(law.struct.dtype)
    some = (size > 0).reshape(size.shape + (1,) * (drawn.ndim - size.ndim))
    return jnp.where(some, drawn, 0)


def _scattered(known: Scattered, key: Any, values: Columns, n: Any) -> Drawn:
    rows, size, good = len(n), known.numbers, n >= 0
    zeros = {
        name: jnp.zeros((rows, 1, *law.struct.shape), law.struct.dtype) for name, law in known.summand.laws.items()
    }
    for law in known.summand.laws.values():
        good &= jnp.all(_lowered(law, values, zeros, rows)[1], axis=1)
    first, second, third = random.split(key, 3)
    mean = random.normal(first, (rows, size), float) / jnp.sqrt(jnp.maximum(n, 1))[:, None]
    left = jnp.maximum(n[:, None] - 1 - jnp.arange(size), 0)
    diagonal = jnp.sqrt(2.0 * random.gamma(second, jnp.where(left > 0, 0.5 * left, 1.0)))
    below = jnp.tril(random.normal(third, (rows, size, size), float), -1)
    root = (below + diagonal[:, :, None] * jnp.eye(size)) * (left > 0)[:, None, :]
    outer = {name: values[name] for name in known.summand.outer}
    return jax.vmap(known.of_row)(outer, mean, root, n), good


def _tallied(known: Tallied, key: Any, values: Columns, n: Any) -> Drawn:
    rows, good, chances = len(n), n >= 0, jnp.ones((len(n), known.work))
    records = {field: jnp.broadcast_to(one, (rows, known.work)) for field, one in known.categories.items()}
    for field, law in known.summand.laws.items():
        attributes, fine = _lowered(law, values, records, rows)
        good &= jnp.all(fine | (chances == 0), axis=1)  # a category that is never met may have any law
        (own,) = attributes.values()
        if law.form.kind.startswith("Bernoulli"):
            own = jnp.where(records[field] == 1, own, 1.0 - own)
        else:
            own = jnp.take_along_axis(own, records[field][..., None], axis=-1)[..., 0]
        chances = jnp.where(chances > 0, chances * own, 0.0)
    shares = chances / jnp.sum(chances, axis=1, keepdims=True)
    counts = DRAWS["MultinomialProbs"](key, (rows,), probs=shares, total_count=n)
    arguments = {name: {**values, **records}[name] for name in known.summand.arguments}
    return known.summed(arguments, counts), good
