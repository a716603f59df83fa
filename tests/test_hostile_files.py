"""Files are data, never code: malformed ones end in success or the library's own error, in bounded time and memory.

A short version of the campaign in fuzz/ (make fuzz).
"""

import ast
import json
import os
import random
import re
import resource
import struct
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import numpyro.distributions as dist
import pytest
from fuzz import batch, campaign
from fuzz.kinds_of_files import KINDS, framed, malformed, outcome, results
from targets import briefly, count_model, count_release

import noisewise as nw
from noisewise.analysis import Analysis, starter
from noisewise.checkpoint import describe
from noisewise.errors import InputError
from noisewise.release import release
from noisewise.results import posterior_file as result_file

SOURCE = Path(nw.__file__).parent
COUNTS = {"release": 300, "analysis": 60, "checkpoint": 60, "state": 30, "result": 30, "fit": 100}


# Data, never code ---------------------------------------------------------------------------------------------------

RUNS_CODE = {"eval", "exec", "compile", "__import__", "execfile"}
PICKLES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
WORDS = re.compile(rf"(?<![.\w])({'|'.join(RUNS_CODE)})\s*\(|{'|'.join(PICKLES)}|allow_pickle")


def suspicious(text):
    """Names in a source file that run code or read pickles. One that has none of the words need not be parsed."""
    found = set()
    if not WORDS.search(text):
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_CODE:
            found.add(node.func.id)
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & PICKLES
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & PICKLES
        if isinstance(node, ast.Call):
            found |= {"allow_pickle" for word in node.keywords if word.arg == "allow_pickle"}
            names = [part.value for part in node.args if isinstance(part, ast.Constant)]
            found |= PICKLES & {name for name in names if isinstance(name, str)}
    return found


def test_only_the_engines_pickle_and_nothing_evaluates():
    found = {}
    for path in SOURCE.rglob("*.py"):
        words = suspicious(path.read_text(encoding="utf-8"))
        if words:
            found[path.relative_to(SOURCE).as_posix()] = words
    # what everyday functions write and run is looked through by `harmless`: see tests/everyday/test_written.py
    assert found.pop("everyday/written.py") == {"exec", "compile"}
    assert all(path.startswith("engine/") for path in found), found
    assert not set.union(set(), *found.values()) & RUNS_CODE, found


@pytest.mark.parametrize(
    "text", ["eval('1')", "import pickle", "from pickle import loads", "f(allow_pickle=True)", "load('cloudpickle')"]
)
def test_the_search_for_code_notices_it(text):
    assert suspicious(text)


# Malformed files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["release", "analysis", "checkpoint", "fit", pytest.param("state", marks=pytest.mark.long)]
)
def test_malformed_files_are_read_or_refused(kind, seed, tmp_path):
    tally = {}
    for number in range(COUNTS[kind]):
        data = malformed(kind, random.Random(f"{kind}/{seed}/{number}"))
        found, told = batch.one(kind, data, tmp_path / "input")
        assert told is None, f"input {number} of seed {seed}: {told}"
        tally[found] = tally.get(found, 0) + 1
    assert tally["refused"] > COUNTS[kind] // 20


def test_malformed_results_are_read_or_refused(seed, tmp_path):
    """In a process of its own: HDF5 is a C library, and hostile bytes are its to parse."""
    lines = campaign.batch("result", seed, 0, COUNTS["result"], tmp_path)
    assert [line for line in lines if "finding" in line] == []
    assert sum(lines[-1]["tally"].values()) == COUNTS["result"]


def test_every_kind_of_file_is_tried():
    assert set(KINDS) == set(COUNTS) == set(campaign.SHARES) == set(campaign.BATCH)


@pytest.mark.long
def test_hypothesis_finds_no_counterexample(seed):
    """The same claim as above; to import Hypothesis alone takes seconds."""
    pytest.importorskip("hypothesis")
    from fuzz import properties

    properties.check("release", 15, seed)


def test_an_error_that_is_not_ours_is_a_finding(monkeypatch, tmp_path):
    """The very same check fails where a reader lets NumPy's own error through."""
    monkeypatch.setattr(release, "restored", lambda entry, where, version: np.asarray([[1], [2, 3]]))
    text = json.dumps(count_release().to_dict()).encode()
    found, told = batch.one("release", text, tmp_path / "input")
    assert found == "finding"
    assert told.startswith("ValueError")


def test_a_reader_that_hangs_is_a_finding(monkeypatch, tmp_path):
    def endless(entry, where, version):
        while True:
            pass

    monkeypatch.setattr(batch, "SECONDS", 0.2)
    monkeypatch.setattr(release, "restored", endless)
    text = json.dumps(count_release().to_dict()).encode()
    assert batch.one("release", text, tmp_path / "input")[1].startswith("TooLong")


# Sizes --------------------------------------------------------------------------------------------------------------


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_release_larger_than_its_limit_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "release.json"
    path.write_bytes(b'{"version": 1')
    os.truncate(path, 2**40)  # mostly a hole
    before, began = peak(), time.process_time()
    with pytest.raises(InputError, match="longer than 67,108,864 bytes"):
        nw.Release.load(path)
    assert time.process_time() - began < 5.0
    assert peak() - before < 4 * release.LARGEST


def test_a_number_of_very_many_digits_is_refused_at_once(tmp_path):
    path = tmp_path / "release.json"
    good = json.dumps(count_release().to_dict())
    number = json.dumps(count_release()["count"].value)
    assert number in good
    path.write_text(good.replace(number, "9" * 10_000_000, 1))
    began = time.process_time()
    with pytest.raises(InputError, match="digits"):
        nw.Release.load(path)
    assert time.process_time() - began < 5.0


def test_one_long_word_does_not_make_room_for_many(tmp_path):
    """An array of words has the room of the longest for each."""
    path = tmp_path / "release.json"
    content = count_release().to_dict()
    content["statistics"]["count"]["value"] = ["x" * 1_000_000] + ["y"] * 1_000_000  # 4 TB
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="words too long for so many entries"):
        nw.Release.load(path)
    content["statistics"]["count"]["value"] = ["x"] * 100
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="must be a number"):
        nw.Release.load(path)


@pytest.mark.parametrize("key", ["a", '"a"', "'.'", '"\\""'], ids=["bare", "quoted", "literal", "escaped"])
def test_a_key_of_very_many_parts_is_refused_at_once(key):
    """`tomllib` would take memory in the square of them."""
    good, began = starter("count"), time.process_time()
    for text in (
        f"{' . '.join([key] * 20_000)} = 1",
        f"[{'.'.join([key] * 20_000)}]",
        f"x = {{ {f'{key}.' * 900}b = 1 }}",
    ):
        with pytest.raises(InputError, match="a key must not have more than 50 parts"):
            Analysis.from_text(f"{text}\n{good}")
    assert time.process_time() - began < 5.0


def test_long_words_are_not_quoted_in_full(tmp_path):
    path = tmp_path / "release.json"
    content = count_release().to_dict()
    content["statistics"]["count"]["s" * 100_000] = 1
    path.write_text(json.dumps(content))
    for read in (lambda: nw.Release.load(path), lambda: Analysis.from_text(f"[{'p' * 100_000}]\n{starter('count')}")):
        with pytest.raises(InputError) as caught:
            read()
        assert len(str(caught.value)) < 10_000


def changed_result(tmp_path, change):
    path = tmp_path / "posterior.nc"
    path.write_bytes(results()[0])
    with h5py.File(path, "r+") as file:
        del file["posterior/theta"]
        change(file)
    return path


def test_draws_that_are_declared_but_not_stored_are_not_made(tmp_path):
    path = changed_result(
        tmp_path, lambda file: file.create_dataset("posterior/theta", (1, 2**40), "f8", chunks=(1, 1024))
    )
    with pytest.raises(InputError, match="larger than the file"):
        nw.Posterior.load(path)


def test_a_chunk_larger_than_its_array_is_not_unpacked(tmp_path):
    """Packed zeros that unpack to a thousand times as many, for sixty draws."""

    def change(file):
        more = dict(chunks=(1, 2**23), maxshape=(None, None), compression="gzip")
        held, packer = file.create_dataset("posterior/theta", (1, 60), "f8", **more), zlib.compressobj(1)
        packed = b"".join(packer.compress(bytes(2**20)) for _ in range(2**6)) + packer.flush()
        held.id.write_direct_chunk((0, 0), packed)

    path, before = changed_result(tmp_path, change), peak()
    with pytest.raises(InputError, match="larger than the file"):
        nw.Posterior.load(path)
    assert peak() - before < 2**25


def test_an_attribute_of_many_texts_is_refused(tmp_path):
    """All of them may be one and the same long text of the file."""
    for place in ("/", "posterior", "posterior/count"):
        path = changed_result(tmp_path, lambda file, place=place: file[place].attrs.__setitem__("names", ["x"] * 100))
        with pytest.raises(InputError, match="'names' has more than 64 texts"):
            nw.Posterior.load(path)


@pytest.mark.parametrize("name", ["log_evidence", "log_evidence_se", "acceptance_rate", "seconds", "proposals"])
def test_a_number_beyond_floating_point_is_refused(name, tmp_path):
    path = tmp_path / "posterior.nc"
    path.write_bytes(results()[0])
    with h5py.File(path, "r+") as file:
        told = json.loads(file.attrs["noisewise"])
        file.attrs["noisewise"] = np.bytes_(json.dumps(told | {name: 10**400}))
    with pytest.raises(InputError, match=f"'{name}' is 1000"):
        nw.Posterior.load(path)


def test_nothing_is_read_from_a_pipe(tmp_path):
    """It would be waited for, and a hostile folder could hold one."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="must be an existing file"):
        nw.Posterior.load(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is no plain file"):
        describe(tmp_path / "pipe")
    with pytest.raises(InputError, match="must be a plain file"):
        Analysis.from_text('release = "pipe"\n' + starter("count").split("[release")[0], folder=tmp_path)


def test_draws_are_not_read_from_another_file(tmp_path):
    other = tmp_path / "secret"
    other.write_bytes(np.arange(60.0).tobytes())
    made = dict(shape=(1, 60), dtype="f8", external=[(str(other), 0, 480)])
    path = changed_result(tmp_path, lambda file: file.create_dataset("posterior/theta", **made))
    with pytest.raises(InputError, match="not an array of this file"):
        nw.Posterior.load(path)
    path = changed_result(tmp_path, lambda file: file.__setitem__("posterior/theta", h5py.ExternalLink(other, "/")))
    with pytest.raises(InputError, match="not an array of this file"):
        nw.Posterior.load(path)


HEAPS = {
    # (number, size) of the first object of a heap
    "larger than any file": (1, 2**64 - 1),
    "larger than the heap": (1, 2**20),
    "room of no size": (0, 0),
}


@pytest.mark.parametrize(("number", "size"), HEAPS.values(), ids=HEAPS)
def test_texts_that_do_not_fit_their_heap_are_refused(number, size, tmp_path, seed):
    """HDF5 itself may look for the next text for ever, inside a call that no signal ends: so it is not asked."""
    path = tmp_path / "posterior.nc"
    nw.sample(count_model(), count_release(), nw.Rejection(), draws=5, seed=seed).save(path)
    data = bytearray(path.read_bytes())
    at = data.index(result_file.HEAP) + result_file.HEAD
    data[at : at + 16] = struct.pack("<H6xQ", number, size)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="texts do not fit"):  # by `load`, which begins with this, an InputError
        result_file.check_structure(path)


def test_heaps_within_heaps_are_refused_soon(tmp_path):
    """Each would be walked through anew: in the square of their number."""
    path, heads = tmp_path / "posterior.nc", 2**15
    head = result_file.HEAP + bytes(3) + (2**20).to_bytes(8, "little")
    path.write_bytes((head + struct.pack("<H6xQ", 1, 16)) * heads + bytes(2**20))
    began = time.process_time()
    with pytest.raises(ValueError, match="texts do not fit"):
        result_file.check_structure(path)
    assert time.process_time() - began < 10.0


def test_a_result_of_any_size_passes_its_own_check(tmp_path, seed):
    """Axes without values are declared but not stored, so arrays may be larger than the file by a little."""
    wide = nw.Model(
        prior={"rate": dist.Gamma(2.0, 1.0).expand([3_000])}, statistics={"n": lambda rate: dist.Poisson(rate.sum())}
    )
    total = nw.Release(n=nw.Laplace(scale=2e4).released(6_000.0))
    path = tmp_path / "posterior.nc"
    for made in (
        nw.sample(wide, total, nw.Rejection(), draws=2, seed=seed),
        nw.sample(count_model(), count_release(), nw.Rejection(), draws=20_000, seed=seed),
    ):
        made.save(path)
        result_file.check_structure(path)
        (name,) = made.parameters
        assert np.array_equal(nw.Posterior.load(path)[name], made[name])


@pytest.mark.quick
@pytest.mark.parametrize("kind", briefly(KINDS, [kind for kind in KINDS if kind != "state"]))
def test_good_files_are_read(kind, tmp_path):
    """Malformed ones are not refused for a reason that all files share."""
    text_of = lambda good: json.dumps(good).encode()  # noqa: E731
    bytes_of = {"release": text_of, "fit": text_of, "analysis": str.encode}
    for good in KINDS[kind][0]():
        made = framed(good) if kind in ("checkpoint", "state") else bytes_of.get(kind, bytes)(good)
        (tmp_path / "good").write_bytes(made)
        assert outcome(kind, tmp_path / "good") == "read"
