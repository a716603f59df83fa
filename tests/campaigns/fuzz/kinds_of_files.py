"""The kinds of files that noisewise reads: good ones, malformed ones made from them, and the reader's outcome."""

import base64
import io
import json
import tempfile
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import h5py
import malformed_analyses
import numpy as np
import numpyro.distributions as dist
from mechanism_case import all_cases
from targets import count_model, count_release

import noisewise as nw
from fuzz.mutations import malformed_bytes, malformed_json, malformed_toml
from noisewise.analysis import Analysis, starter
from noisewise.analysis import toml as toml_text
from noisewise.analysis.analysis import STARTERS
from noisewise.analysis.release_table import to_table
from noisewise.checkpoint import describe, inspect
from noisewise.checkpoint import file as journal
from noisewise.checkpoint import log as resume
from noisewise.errors import NoisewiseError
from noisewise.mechanisms.packing import MOST_LISTED
from noisewise.results import fit_file
from noisewise.workflow import folder as results_folder
from noisewise.workflow.results import plain

DRAWS = 60


def outcome(kind, path):
    """'read' or 'refused'; whatever else the reader raises is a finding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            READERS[kind](path)
        except NoisewiseError:
            return "refused"
    return "read"


def malformed(kind, rng):
    """The bytes of a malformed file of this kind."""
    goods, mutations = KINDS[kind]
    good = rng.choice(goods())
    return rng.choice(mutations)(rng, good)


# Releases -----------------------------------------------------------------------------------------------------------


@cache
def releases():
    """One release per mechanism of the tests' table, and others: groups, labels, packed arrays."""
    rng, found = np.random.default_rng(0), []
    for case in all_cases():
        value = case.sample(case.mechanism, rng, 1)[0]
        found.append(nw.Release(statistic=case.mechanism.released(value)).to_dict())
    laplace = nw.Laplace(epsilon=0.5, sensitivity=1.0)
    several = nw.Release({name: laplace.released(3.5) for name in ("north", "south", "all")})
    return [*found, several.with_disjoint(["north"], ["south"], public=True).to_dict(), *special()]


def special():
    """Those that have more than a mechanism to be spoilt, so many times that they are met often."""
    return [*[described().to_dict()] * 40, *[packed()] * 10]


def packed():
    """A release whose value and scale are written as bytes, short enough to be mutated often where it matters."""
    content = nw.Release(
        x=nw.Laplace(scale=np.full(MOST_LISTED + 1, 2.0)).released(np.zeros(MOST_LISTED + 1))
    ).to_dict()
    entry = content["statistics"]["x"]
    for key, value in {"value": [1.5, -2.0], "scale": [1.0, 2.0]}.items():
        assert entry[key]["packed"] == "float64"
        entry[key] |= {"shape": [2], "data": base64.b64encode(np.array(value, "<f8").tobytes()).decode()}
    return content


def described():
    """A part of a release with labels along two axes, which says much about itself."""
    laplace = nw.Laplace(epsilon=0.5, sensitivity=1.0).under("add-remove")
    table = laplace.released([[3.5, 1.0]], coords={"county": ["Bronx"], "sex": [1, 2]})
    table = table.described("Cases", unit="persons", bounds=(0, 1), records=12, extra={"a": [1, None, {"b": "c"}]})
    whole = nw.Release(cases=table, others=laplace.released(3.5)).described("Title", date="2026-03-01", extra={"x": 1})
    return whole.select("cases")


def broken_release(rng, good):
    return malformed_bytes(rng, json.dumps(good).encode())


def read_release(path):
    found = nw.Release.load(path)
    assert nw.Release.from_dict(json.loads(json.dumps(found.to_dict()))) == found


# Analyses -----------------------------------------------------------------------------------------------------------


@cache
def analyses():
    labelled = LABELLED + toml_text.to_toml({"release": to_table(described())})
    return [malformed_analyses.GOOD, labelled, *map(starter, STARTERS)]


LABELLED = """[parameters]
rate = "Gamma(2, 0.1)"

[statistics]
cases = "Poisson([[rate, 2 * rate]])"

[dims]
cases = ["county", "sex"]

"""


def broken_analysis(rng, good):
    return malformed_bytes(rng, good.encode())


def read_analysis(path):
    Analysis.load(path, confined=True)


# Checkpoints --------------------------------------------------------------------------------------------------------


@cache
def run_of_count():
    return count_model(), count_release()


class SmallBlocks(nw.Threads):
    """Threads that take few rows at a time, so that a short run has many blocks."""

    rows = 64


COMMON = dict(seed=1, engine=SmallBlocks(1), on_failure="return", progress=False)


def sampled(path, sampler=None, draws=DRAWS):
    return nw.sample(*run_of_count(), sampler or nw.Rejection(), draws=draws, checkpoint=path, **COMMON)


def fitted(path):
    return nw.fit(*run_of_count(), nw.MCEM(final=500), start={"theta": 30.0}, checkpoint=path, **COMMON)


ALGORITHMS = {
    "Importance": lambda path: sampled(path, nw.Importance("adapted"), 300),
    "MCMC": lambda path: sampled(path, nw.MCMC(chains=16, warmup=16), 160),
    "SMC": lambda path: sampled(path, nw.SMC(islands=2, particles=64, keep=0.9), 128),
    "Augmentation": lambda path: sampled(path, nw.Augmentation(chains=4, warmup=5), 40),
    "NUTS": lambda path: sampled(path, nw.NUTS(chains=2, warmup=50), 60),
    "MCEM": fitted,
}
"""Short runs that keep states of chains, populations, pilots and iterations."""


def records_of(run):
    """The records of the checkpoint of a run, [JSON text, bytes of arrays] each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nwc"
        run(path)
        whole, found = path.read_bytes(), []
        at = len(journal.MAGIC)
        while at < len(whole):
            text_size, body_size, _ = journal.FRAME.unpack_from(whole, at)
            start = at + journal.FRAME.size
            found.append((whole[start : start + text_size], whole[start + text_size : start + text_size + body_size]))
            at = start + text_size + body_size
    return found


@cache
def checkpoints():
    return [records_of(sampled)]


@cache
def states():
    """Checkpoints of the other algorithms, their states saved as often as can be."""
    before = resume.EVERY, resume.RATE
    resume.EVERY, resume.RATE = 0.0, 1e15
    try:
        return [records_of(run) for run in ALGORITHMS.values()]
    finally:
        resume.EVERY, resume.RATE = before


def framed(parts):
    """A file of these records, with right checksums."""
    found = journal.MAGIC
    for text, body in parts:
        checksum = journal._checksum(len(found), text, len(body), [body])
        found += journal.FRAME.pack(len(text), len(body), checksum) + text + body
    return found


def forged_checkpoint(rng, good):
    """Right checksums, wrong contents."""
    parts = list(good)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(parts))
        text, body = parts[at]
        kind = rng.randrange(6)
        if kind == 0:
            parts[at] = (text, malformed_bytes(rng, body))
        elif kind == 1:
            parts.insert(rng.randrange(len(parts) + 1), (text, body))
        elif kind == 2 and len(parts) > 1:
            del parts[at]
        else:
            try:
                parts[at] = (malformed_json(rng, json.loads(text)), body)
            except (ValueError, RecursionError):  # made malformed by the change before
                parts[at] = (malformed_bytes(rng, text), body)
    return framed(parts)


ODD = [None, 0, -1, 3, 10**20, "x", [], {"a": 0}, {"d": {}}, {"t": []}, 1.5, float("nan"), True, {"s": 0}]


def forged_state(rng, good):
    """One record after the header with a right checksum and a wrong content, often the last there is."""
    parts, at = list(good), rng.randrange(1, len(good))
    text, body = parts[at]
    told, kind = json.loads(text), rng.random()
    if told["a"] and kind < 0.4:
        array = rng.choice(told["a"])
        shape = array[1]
        array[1] = rng.choice([shape, [1], [], [0], [2, 2], shape[:-1], [*shape, 1], [1, *shape]])
        array[0] = rng.choice([array[0], "<i8", "<f8", "|b1", "<f4"])
    else:
        holder, name = rng.choice([*_places(told["v"]), (told, "v")])
        if rng.random() < 0.3:
            del holder[name]
        else:
            holder[name] = rng.choice(ODD)
    parts[at] = (json.dumps(told).encode(), body)
    return framed(parts[: at + 1] if rng.random() < 0.5 else parts)


def _places(data):
    """(holder, name) of everything inside."""
    names = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else []
    return [(data, name) for name in names] + [place for name in names for place in _places(data[name])]


def broken_checkpoint(rng, good):
    return malformed_bytes(rng, framed(good))


def read_checkpoint(path):
    """Its description, then the run that goes on from it."""
    describe(path)
    sampled(path)


def read_state(path):
    """The run that goes on from it, by the algorithm that its header names."""
    header = inspect(path)
    ALGORITHMS[(header.get("sampler") or header["estimator"])["name"]](path)


# Results ------------------------------------------------------------------------------------------------------------


@cache
def results():
    """Plain, weighted and vector draws, and chains."""
    model, release = run_of_count()
    pair = nw.Model(
        prior={"rate": dist.Gamma(2.0, 1.0).expand([2])},
        statistics={"counts": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("place",)},
    )
    counts = nw.Release(counts=nw.Laplace(scale=2.0).released([3.0, 1.0]))
    plain = nw.sample(model, release, nw.Rejection(), draws=DRAWS, seed=1)
    weighted = nw.sample(model, release, nw.Importance(), draws=DRAWS, seed=1, on_failure="return")
    vector = nw.sample(pair, counts, nw.Rejection(), draws=DRAWS, seed=1)
    named = nw.Release(counts=counts["counts"].with_coords({"place": ["north", "south"]}))
    labelled = nw.sample(pair, named, nw.Rejection(), draws=DRAWS, seed=1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.nc"
        for posterior in (plain, weighted, vector, labelled, replace(plain, chains=2), replace(plain, islands=3)):
            posterior.save(path)
            found.append(path.read_bytes())
    return found


def broken_result(rng, good):
    return malformed_bytes(rng, good)


def other_metadata(rng, good):
    """A well-formed file whose metadata are malformed."""

    def change(file):
        text = malformed_json(rng, json.loads(file.attrs["noisewise"]))
        file.attrs["noisewise"] = np.bytes_(text[:60_000]) if rng.random() < 0.2 else h5py.Empty("f8")
        if len(text) < 60_000:  # HDF5 keeps larger attributes elsewhere
            file.attrs["noisewise"] = text.decode("utf-8", errors="surrogateescape")

    return _changed(good, change)


def other_structure(rng, good):
    """A well-formed HDF5 file whose groups and datasets are not those of a posterior."""
    return _changed(good, lambda file: rng.choice(STRUCTURES)(rng, file))


def _changed(good, change):
    held = io.BytesIO(good)
    # Where HDF5 does not let itself be made wrong in this way, the file is as far as it came.
    with h5py.File(held, "r+") as file, suppress(ValueError, TypeError, OSError, KeyError, RuntimeError):
        change(file)
    return held.getvalue()


def _path(rng, file):
    found = ["posterior", "observed_data"]
    file.visit(found.append)
    return rng.choice(found)


def _huge(rng, file):
    """Declared, not stored: reading would fill the memory with zeros."""
    shape = rng.choice([(1, 2**40), (2**20, 2**20), (1, 60, 2**33), (2**62,)])
    kind = rng.choice(["f8", "i1", "S1000000"])
    _anew(file, _path(rng, file), shape=shape, dtype=kind, chunks=tuple(min(one, 1024) for one in shape))


def _bomb(rng, file):
    """Small in the file, large when unpacked."""
    _anew(file, _path(rng, file), shape=(1, 2**21), dtype="f8", compression="gzip", compression_opts=1, fillvalue=1.0)


def _elsewhere(rng, file):
    """Bytes of another file as draws."""
    outside = [("/etc/passwd", 0, 480)]
    _anew(file, _path(rng, file), shape=(1, 60), dtype="f8", external=outside)


def _linked(rng, file):
    path = _path(rng, file)
    del file[path]
    target = rng.choice(["/", "/posterior", "/nowhere", path])
    file[path] = rng.choice(
        [h5py.SoftLink(target), h5py.ExternalLink("/etc/passwd", "/"), h5py.ExternalLink("x.nc", target)]
    )


def _looped(rng, file):
    file[_path(rng, file) + "/again"] = file[rng.choice(["/", "posterior"])]


def _virtual(rng, file):
    layout = h5py.VirtualLayout(shape=(1, 60), dtype="f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "theta", shape=(1, 60))
    path = _path(rng, file)
    del file[path]
    file.create_virtual_dataset(path, layout)


def _typed(rng, file):
    kinds = [
        *("S5", "c16", "f2", ">f8", "u1", "?", h5py.string_dtype(), h5py.ref_dtype, h5py.vlen_dtype("f8"), "V7"),
        *([("a", "f8")], h5py.enum_dtype({"a": 1}), "i8", "f4"),
    ]
    _anew(file, _path(rng, file), shape=rng.choice([(1, 60), (60,), (), (2, 0), (0,), (3, 7)]), dtype=rng.choice(kinds))


def _described(rng, file):
    """Attributes that xarray acts upon."""
    names = ["units", "scale_factor", "add_offset", "_FillValue", "dtype", "calendar", "coordinates", "noisewise"]
    values = ["seconds since 1970-01-01", "days since x", 1e308, np.nan, "bool", "theta draw", [1, 2], "", np.inf, "S"]
    file[_path(rng, file)].attrs[rng.choice(names)] = rng.choice(values)


def _removed(rng, file):
    del file[_path(rng, file)]


def _moved(rng, file):
    file.move(
        _path(rng, file), rng.choice(["posterior/x", "sample_stats/log_weights", "é", "observed_data/y", "a/b/c"])
    )


def _deep(rng, file):
    file.create_group(_path(rng, file) + "/a" * rng.choice([1, 30, 2_000]))


def _anew(file, path, **keywords):
    del file[path]
    file.create_dataset(path, **keywords)


STRUCTURES = [
    *(_huge, _bomb, _elsewhere, _linked, _looped, _virtual, _typed, _typed),
    *(_described, _described, _removed, _moved, _deep),
]


def read_result(path):
    """What the file gives can be looked at, too."""
    repr(nw.Posterior.load(path))


# Fits ---------------------------------------------------------------------------------------------------------------


@cache
def fits():
    """Of one number and of several, with Monte Carlo errors."""
    exact = nw.fit(*run_of_count(), nw.EM(), start={"theta": 30.0})
    several = replace(
        exact,
        estimate={"p": np.array([0.4, 0.6]), "q": np.array(1.0)},
        labels=("p[0]", "p[1]", "q"),
        covariance=np.eye(3),
        efficiency={"p": np.ones(2), "q": np.array(0.5)},
        monte_carlo_error={"p": np.zeros(2), "q": np.array(0.1)},
        trace=({"iteration": 0, "p": np.ones(2), "q": np.array(1.0)},),
    )
    return [json.loads(json.dumps(plain(fit_file.to_data(fit)))) for fit in (exact, several)]


def read_fit(path):
    """What the file gives can be looked at, too."""
    repr(fit_file.from_data(results_folder._read_json(path), nw.EM(), str(path)))


# All ----------------------------------------------------------------------------------------------------------------

KINDS = {
    "release": (releases, [malformed_json, malformed_json, malformed_json, broken_release]),
    "analysis": (analyses, [malformed_toml, malformed_toml, malformed_toml, broken_analysis]),
    "checkpoint": (checkpoints, [forged_checkpoint, forged_checkpoint, broken_checkpoint]),
    "state": (states, [forged_state]),
    "result": (results, [broken_result, other_metadata, other_metadata, other_structure]),
    "fit": (fits, [malformed_json, malformed_json, broken_release]),
}
READERS = {
    "release": read_release,
    "analysis": read_analysis,
    "checkpoint": read_checkpoint,
    "state": read_state,
    "result": read_result,
    "fit": read_fit,
}
