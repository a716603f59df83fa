"""Small counts measured several ways: how often 95% intervals hold the truth, exact ones beside least squares.

    python benchmarks/measured_coverage.py [--write]

500 tracts of 8 cells, each a Poisson count of the mean given, with total, voting age, ethnicity and all cells measured
by discrete Gaussian noise of the Bureau's scales for tracts. Least squares is the estimate weighted by the noise's
variances, with its normal interval. Exact: the posterior under a flat law up to 2,000, and under a Poisson law whose
rate has a Gamma(1/2, 1/100) prior, central intervals of whole numbers. Each tract is one chain of its own release. A
share near 0.95 has a standard error of 0.010. The promise of exact intervals is about tables as their law expects them:
the last row has means drawn from the Gamma law itself, all cells together (standard error 0.003). Intervals of whole
numbers hold the truth more often than 95% where counts are small, since they cannot be cut finer. The flat law expects
a thousand people in every cell: at given small means it puts more of a sum into its small cells.
"""

import sys

import numpy as np
import numpyro.distributions as dist
import page
from measured_tables import QUERIES, scales

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.samplers.augmentation import closed_forms, one_sweep, sweep_steps
from noisewise.samplers.gibbs.joint import Joint, State
from noisewise.samplers.gibbs.measured import MeasuredTable

RELEASES, WARM, SWEEPS = 500, 200, 1_000
MEANS = np.array([0.3, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]).reshape(2, 2, 2)
DIMS = ("age", "ethnicity", "housing")
HEAD = (
    *("mean of the cell", "least squares: held", "width", "below zero"),
    *("exact, flat: held", "width", "exact, Poisson: held", "width"),
)


def measurements(cells, rng):
    """For each query its mechanism, its axes, and the noisy values of every tract."""
    scale, found = scales(), {}
    for query, over in QUERIES.items():
        mechanism = nw.DiscreteGaussian(scale=scale["Tract", query])
        truth = cells.sum(axis=tuple(1 + DIMS.index(axis) for axis in over))
        found[query] = (mechanism, over, np.asarray(mechanism.sample(rng, truth)))
    return found


def least_squares(found):
    """Estimates of every tract, and the standard errors of the cells."""
    rows, scale, values = [], [], []
    identity = np.eye(8).reshape(8, 2, 2, 2)
    for mechanism, over, noisy in found.values():
        matrix = identity.sum(axis=tuple(1 + DIMS.index(axis) for axis in over)).reshape(8, -1).T
        rows.append(matrix)
        scale += [float(mechanism.scale)] * len(matrix)
        values.append(noisy.reshape(len(noisy), -1))
    design, weight = np.vstack(rows), np.array(scale) ** -2.0
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    return (np.hstack(values) * weight) @ design @ covariance, np.sqrt(np.diag(covariance))


def exact(model, found, seed):
    """Draws of every tract's cells: (draw, tract, cell)."""
    first = {n: m.of("cells", axes=over or None).released(noisy[0]) for n, (m, over, noisy) in found.items()}
    joint, rng = Joint(Problem(model, nw.Release(first)), {}), np.random.default_rng(seed)
    values = model.draw(rng, model.order, RELEASES)
    state = State(values)
    MeasuredTable.of(joint, "cells").settle(rng, state)
    joint.axes = dict.fromkeys(found, (None, 0))
    joint.release = {name: (mechanism, noisy.astype(float)) for name, (mechanism, _, noisy) in found.items()}
    steps = sweep_steps(joint, closed_forms(joint, state))
    kept = []
    for sweep in range(WARM + SWEEPS):
        one_sweep(rng, joint, steps, state, sweep < WARM)
        if sweep >= WARM:
            kept.append(state.values["cells"].reshape(RELEASES, 8))
    return np.array(kept)


def held(low, high, truth):
    """Which intervals hold the truth, and how long they are."""
    return (low <= truth) & (truth <= high), high - low


def compared(means, seed):
    """The columns of the table, an array of (release, cell) each, for cells with these means."""
    rng = np.random.default_rng(seed)
    cells = rng.poisson(means, (RELEASES, 2, 2, 2))
    truth, found = cells.reshape(RELEASES, 8), measurements(cells, rng)
    estimate, error = least_squares(found)
    flat = nw.Model({}, {"cells": nw.counts_up_to(2_000, shape=(2, 2, 2))}, dims={"cells": DIMS})
    rated = nw.Model(
        {"rate": dist.Gamma(0.5, 0.01).expand([2, 2, 2]).to_event(3)},
        {"cells": lambda rate: dist.Poisson(rate).to_event(3)},
        dims={"cells": DIMS},
    )
    columns = [*held(estimate - 1.96 * error, estimate + 1.96 * error, truth), estimate < 0]
    for model in (flat, rated):
        low, high = np.quantile(exact(model, found, seed), [0.025, 0.975], axis=0, method="inverted_cdf")
        columns += held(low, high, truth)
    return [np.broadcast_to(column, truth.shape) for column in columns]


def rows_of(seed=1):
    """The rows of the table: the given means, cell by cell, and means of the law, all cells together."""
    forms = ("{:.3f}", "{:.1f}", "{:.0%}", "{:.3f}", "{:.1f}", "{:.3f}", "{:.1f}")
    given = [column.mean(axis=0) for column in compared(MEANS, seed)]
    drawn = np.random.default_rng(seed + 1).gamma(0.5, 100.0, (RELEASES, 2, 2, 2))
    lines = [(f"{mean:g}", *line) for mean, *line in zip(MEANS.ravel(), *given, strict=True)]
    lines.append(("of the law", *(column.mean() for column in compared(drawn, seed + 2))))
    return [(name, *(form.format(value) for form, value in zip(forms, line, strict=True))) for name, *line in lines]


if __name__ == "__main__":
    rows = rows_of()
    for row in (HEAD, *rows):
        print(*row, sep="\t")
    if sys.argv[1:] == ["--write"]:
        told = [page.measured_by("python benchmarks/measured_coverage.py --write"), __doc__.split("\n\n")[2]]
        page.write("coverage", "\n\n".join(["## Small counts: what intervals hold", *told, page.table([HEAD, *rows])]))
