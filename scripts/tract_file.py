"""Make the files of docs/tutorials/census-tracts.md: `python scripts/tract_file.py docs/data`.

They have the form of the 2020 Census noisy measurement files of persons, with the variances of their production
settings (docs/data/census-pl94-person-scales.csv). The county, its tracts and their people are made up. The truth
behind the noise is written too, so that the tutorial can be marked.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import noisewise as nw

COUNTY = "099100011"  # no state has the number 99
TRACTS = 12
MEAN, SIZE = 0.22, 40.0
"""Shares of people under 18 come from Beta(MEAN * SIZE, (1 - MEAN) * SIZE)."""
SCALES = Path(__file__).parents[1] / "docs/data/census-pl94-person-scales.csv"


def variances():
    """sigma^2 of the noise by level and query."""
    with SCALES.open(encoding="utf-8") as file:
        return {(row["level"], row["query"]): float(row["sigma_squared"]) for row in csv.DictReader(file)}


def people(rng):
    """Codes of the tracts, and people under and over 18 in each."""
    codes = [f"{COUNTY}{100 * (tract + 1):06d}" for tract in range(TRACTS)]
    residents = np.exp(rng.uniform(np.log(500), np.log(5_000), TRACTS)).astype(int)
    young = rng.binomial(residents, rng.beta(MEAN * SIZE, (1 - MEAN) * SIZE, TRACTS))
    return codes, np.stack([young, residents - young], -1)


def rows(rng, level, codes, counts):
    """Noisy measurements of `total` and `votingage`."""
    for code, count in zip(codes, counts, strict=True):
        for query, value in (("total", count.sum(keepdims=True)), ("votingage", count)):
            variance = variances()[level, query]
            noisy = nw.DiscreteGaussian(scale=variance**0.5).sample(rng, value)
            grouping = {"votingage": "votingage"} if query == "votingage" else {}
            shape = [1, len(value), 1, 1]
            yield {"geocode": code, "query_name": f"{query}_dpq", "grouping": grouping, "query_shape": shape,
                   "value": noisy.tolist(), "variance": variance}  # fmt: skip


def write(path, measurements):
    """One Parquet file with the columns of the redistricting file of persons."""
    columns = {name: pa.array([row[name] for row in measurements], pa.string()) for name in ("geocode", "query_name")}
    for attribute in ("hhgq", "votingage", "hispanic", "cenrace"):
        columns[attribute] = pa.array([row["grouping"].get(attribute, "*") for row in measurements], pa.string())
    columns["query_shape"] = pa.array([row["query_shape"] for row in measurements], pa.list_(pa.int32()))
    columns["value"] = pa.array([row["value"] for row in measurements], pa.list_(pa.int64()))
    columns["variance"] = pa.array([row["variance"] for row in measurements], pa.float32())
    pq.write_table(pa.table(columns), path)


def main(folder):
    """Write the noisy measurements of the county and of its tracts and, apart from them, the truth."""
    rng = np.random.default_rng(2020)
    codes, counts = people(rng)
    write(Path(folder) / "nmf-county.parquet", list(rows(rng, "County", [COUNTY], counts.sum(axis=0, keepdims=True))))
    write(Path(folder) / "nmf-tract.parquet", list(rows(rng, "Tract", codes, counts)))
    with (Path(folder) / "tract-truth.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("geocode", "under_18", "adults"))
        table.writerows((code, *count) for code, count in zip(codes, counts.tolist(), strict=True))


if __name__ == "__main__":
    main(sys.argv[1])
