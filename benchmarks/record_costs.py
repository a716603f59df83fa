"""What a record of a `Total` costs where it must be simulated, beside NumPy by hand.

    python benchmarks/record_costs.py

scaling.py writes the table.
"""

import time
from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import page
import regression_total

import noisewise as nw

TURNS, BLOCKS = 24, 4
HEAD = ["case", "records", "noisewise", "by hand", "in place", "its variates alone"]
TOLD = """A record that must be simulated, in nanoseconds of processor time for each record and field, in one thread:
one block of the model, beside NumPy as one writes it (`rng.normal`, `clip`, `mean`), NumPy written to stay in the cache
(some rows at a time, in place), and NumPy's variates alone into memory that is there: normal ones, or those of the law
that is named. A turn is four blocks in a row, as a run has them. Turns taken, medians."""


def clamped_by_hand(rng, mu, n):
    """As one writes it."""
    return np.clip(rng.normal(mu[:, None], 1.0, (len(mu), n)), -3.0, 3.0).mean(axis=1)


def clamped_in_place(rng, mu, n, numbers=2**14):
    """As one writes it who knows what memory costs."""
    rows = max(1, numbers // n)
    x, means = np.empty((rows, n)), np.empty(len(mu))
    for start in range(0, len(mu), rows):
        part = x[: len(mu) - start]
        rng.standard_normal(out=part)
        part += mu[start : start + rows, None]
        np.clip(part, -3.0, 3.0, out=part)
        means[start : start + rows] = part.mean(axis=1)
    return means


def waiting_problem(records):
    """A clamped mean of exponential waiting times."""
    law = {"x": lambda mu: dist.Exponential(jnp.exp(mu))}
    total = nw.Total(law, lambda x, n=records: jnp.clip(x, 0.0, 3.0) / n, n=records)
    return nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"mean": total})


def uniform_problem(records):
    """A clamped mean of uniform numbers."""
    law = {"x": lambda mu: dist.Uniform(mu, mu + 3.0)}
    total = nw.Total(law, lambda x, n=records: jnp.clip(x, 0.0, 3.0) / n, n=records)
    return nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"mean": total})


def waiting_by_hand(rng, mu, n):
    """As one writes it."""
    return np.clip(rng.exponential(np.exp(-mu)[:, None], (len(mu), n)), 0.0, 3.0).mean(axis=1)


def uniform_by_hand(rng, mu, n):
    """As one writes it."""
    return np.clip(rng.uniform(mu[:, None], mu[:, None] + 3.0, (len(mu), n)), 0.0, 3.0).mean(axis=1)


def products_in_place(rng, rows):
    """Nine sums of clamped products, in the chunks that regression_total.py takes."""
    for _ in range(rows // regression_total.CHUNK):
        regression_total.block(rng, regression_total.CHUNK)


def cases():
    """(name, model, records, rows, fields, ways by hand, NumPy's name of the variates)"""
    from scaling import total_problem

    rng = np.random.default_rng(1)
    for n, rows in ((10, 8192), (100, 4096), (1_000, 512), (10_000, 64)):
        mu = np.linspace(-1.0, 1.0, rows)
        ways = {"by hand": partial(clamped_by_hand, rng, mu, n), "in place": partial(clamped_in_place, rng, mu, n)}
        yield "clamped mean", total_problem(n)[0], n, rows, 1, ways, "standard_normal"
    others = {
        "clamped mean, exponential": (waiting_problem, waiting_by_hand, "standard_exponential"),
        "clamped mean, uniform": (uniform_problem, uniform_by_hand, "random"),
    }
    for name, (problem, by_hand, variates) in others.items():
        n, rows = 1_000, 512
        ways = {"by hand": partial(by_hand, rng, np.linspace(-1.0, 1.0, rows), n)}
        yield name, problem(n), n, rows, 1, ways, variates
    ways = {"in place": partial(products_in_place, rng, 2048)}
    model = regression_total.problem()[0]
    yield "nine sums of clamped products", model, regression_total.N, 2048, 3, ways, "standard_normal"


def nanoseconds(model, n, rows, fields, ways, variates):
    """By way, for each record and field."""
    rng, numbers = np.random.default_rng(2), np.empty(rows * n * fields)
    given = {parameter: np.linspace(-1.0, 1.0, rows) for parameter in model.parameters}
    ways = {"noisewise": partial(model.draw, rng, [model.statistics[0]], rows, given), **ways}
    ways["its variates alone"] = partial(getattr(rng, variates), out=numbers)
    seconds = {way: [] for way in ways}
    for _ in range(TURNS):
        for way, run in ways.items():
            began = time.process_time()
            for _ in range(BLOCKS):
                run()
            seconds[way].append((time.process_time() - began) / BLOCKS)
    return {way: 1e9 * np.median(taken[1:]) / len(numbers) for way, taken in seconds.items()}


def table():
    """As Markdown."""
    rows = []
    for name, model, n, *case in cases():
        costs = nanoseconds(model, n, *case)
        rows.append([name, f"{n:,}", *(f"{costs[way]:.1f}" if way in costs else "" for way in HEAD[2:])])
    return page.table([HEAD, *rows])


if __name__ == "__main__":
    print(table())
