"""Make the county file of docs/tutorials/county-counts.md: `python scripts/county_file.py docs/data`.

The file has the shape of a census noisy measurement file: one row per area and cell, the noisy value, the variance of
its noise. Counties and people are made up. The truth behind the noise is written too, so that the tutorial can be
marked.
"""

import csv
import sys
from pathlib import Path

import numpy as np

import noisewise as nw

COUNTIES = 20
RHO = 0.005
MEAN, SIZE = 0.12, 60.0
"""Shares of vacant homes come from Beta(MEAN * SIZE, (1 - MEAN) * SIZE)."""


def counties(rng):
    """Codes, homes, and how many of them are vacant: from hamlets to towns, as counties go."""
    codes = [f"99{2 * i + 1:03d}" for i in range(COUNTIES)]  # no state has the number 99
    homes = np.exp(rng.uniform(np.log(40), np.log(600), COUNTIES)).astype(int)
    vacant = rng.binomial(homes, rng.beta(MEAN * SIZE, (1 - MEAN) * SIZE, COUNTIES))
    return codes, homes, vacant


def write(folder, name, header, rows):
    """One CSV file."""
    with open(Path(folder) / name, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def main(folder):
    """Write the noisy measurements and, apart from them, the truth."""
    rng = np.random.default_rng(2020)
    codes, homes, vacant = counties(rng)
    noise = nw.DiscreteGaussian(rho=RHO, sensitivity=1)
    noisy = noise.sample(rng, vacant)
    rows = []
    for code, home, value in zip(codes, homes, noisy, strict=True):
        rows.append((code, "county", "housing units", "total", home, 0.0))
        rows.append((code, "county", "housing units * occupancy", "vacant", int(value), float(noise.scale**2)))
    write(folder, "county-measurements.csv", ("geocode", "level", "query", "cell", "value", "variance"), rows)
    write(folder, "county-truth.csv", ("geocode", "vacant"), zip(codes, vacant, strict=True))


if __name__ == "__main__":
    main(sys.argv[1])
