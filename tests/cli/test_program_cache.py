"""Programs kept between commands: where, how many, and never at the cost of a run."""

import os
import subprocess
import sys

import jax
import pytest

from noisewise.cli import program_cache
from noisewise.cli.program_cache import keep_programs, prune


@pytest.fixture
def settings(monkeypatch):
    """What JAX is told, in place of telling it."""
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", None, raising=False)
    return told


def test_the_folder_of_the_platform_or_one_that_was_named(settings, tmp_path, monkeypatch):
    monkeypatch.delenv("NOISEWISE_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = keep_programs()
    assert kept.parent == tmp_path / "noisewise" / "programs"
    assert settings["jax_compilation_cache_dir"] == str(kept)
    monkeypatch.setenv("NOISEWISE_CACHE", str(tmp_path / "here"))
    assert keep_programs().parent == tmp_path / "here"


@pytest.mark.parametrize("setting", ["0", "off", "no", ""])
def test_nothing_is_kept_where_that_is_asked(settings, monkeypatch, setting):
    monkeypatch.setenv("NOISEWISE_CACHE", setting)
    assert keep_programs() is None
    assert not settings


def test_a_folder_that_cannot_be_written_is_no_failure(settings, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NOISEWISE_CACHE", str(tmp_path / "file"))
    assert keep_programs() is None
    assert not settings


def test_what_was_used_last_is_kept(tmp_path):
    for age in range(4):
        path = tmp_path / f"program{age}-cache"
        path.write_bytes(bytes(10))
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "something-else").write_bytes(bytes(1000))
    prune(tmp_path, most=25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program0-cache", "program1-cache", "something-else"]


def test_machines_of_another_kind_have_a_folder_of_their_own(monkeypatch):
    here = program_cache._processor()
    monkeypatch.setattr(program_cache.platform, "machine", lambda: "another")
    assert program_cache._processor() != here


def test_a_spoiled_file_is_compiled_anew(tmp_path):
    """One half written by another process, say: the same numbers, and no word about it."""
    script = """
import os, pathlib
import jax
from noisewise.cli.program_cache import keep_programs

keep_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
for _ in range(2):
    print(jax.jit(lambda x: jax.numpy.exp(x).sum())(jax.numpy.arange(3.0)))
    files = list(pathlib.Path(os.environ["NOISEWISE_CACHE"]).rglob("*-cache"))
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:100])
    jax.clear_caches()
"""
    environment = os.environ | {"NOISEWISE_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert done.stderr == ""
