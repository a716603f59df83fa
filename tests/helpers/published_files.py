"""Files in the form in which private statistics are published, with made-up numbers in them."""

import numpy as np

PERSONS = ("hhgq", "votingage", "hispanic", "cenrace")
DHC = ("relgq", "sex", "age", "hispanic", "cenrace")
HOUSEHOLDS = ("sex", "hhage", "hisp", "race", "elderly", "hhtenshort_3lev", "hhtype_dhch", "tenvacgq")


def measurement(geocode, query, groupings, shape, value, variance, sign=None):
    """A row of a noisy measurement file; `groupings` are those of its attributes, the others are summed over."""
    return {
        "geocode": geocode,
        "query_name": query,
        "groupings": groupings,
        "query_shape": list(shape),
        "value": [int(count) for count in np.ravel(value)],
        "variance": variance,
        "sign": sign,
    }


def write_measurements(path, rows, attributes=PERSONS, signs=False, row_group=2):
    """A Parquet file as the Census Bureau writes them: lists of counts, float32 variances, few rows a group here."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "geocode": pa.array([row["geocode"] for row in rows], pa.string()),
        "query_name": pa.array([row["query_name"] for row in rows], pa.string()),
    }
    if signs:
        columns["sign"] = pa.array([row["sign"] for row in rows], pa.string())
    for name in attributes:
        columns[name] = pa.array([row["groupings"].get(name, "*") for row in rows], pa.string())
    columns["query_shape"] = pa.array([row["query_shape"] for row in rows], pa.list_(pa.int32()))
    columns["value"] = pa.array([row["value"] for row in rows], pa.list_(pa.int64()))
    columns["variance"] = pa.array([row["variance"] for row in rows], pa.float32())
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group)


def write_views(folder, day, rows, fields=7):
    """A daily file of page views: tabs, no header, no quotes; before 2017 there were neither page nor item numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (country, code, project, title, views) in enumerate(rows):
        middle = [str(1_000 + number), title, f"Q{number}"] if fields == 7 else ["", title]
        lines.append("\t".join([country, code, project, *middle, str(views)]) + "\n")
    (folder / f"{day}.tsv").write_text("".join(lines), encoding="utf-8")
