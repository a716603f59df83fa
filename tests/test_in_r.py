"""Draws in R: the CSV that its package posterior reads, and the script of docs/in-r.md, where R is installed."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import noisewise as nw

PAGE = Path(__file__).parents[1] / "docs/in-r.md"
BLOCK = re.compile(r"^```(r|output)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TOLD = {"released": {}, "release_hash": "", "sampler": nw.Rejection(), "seed": 1}
DRAWS = {"x": np.arange(12.0), "share": np.arange(24.0).reshape(12, 2) / 24}


def read(posterior, tmp_path):
    posterior.to_csv(tmp_path / "draws.csv")
    return pd.read_csv(tmp_path / "draws.csv")


def test_independent_draws_are_one_chain(tmp_path):
    table = read(nw.Posterior(DRAWS, ("x", "share"), **TOLD), tmp_path)
    assert list(table.columns) == [".chain", ".iteration", ".draw", "x", "share[0]", "share[1]"]
    assert np.all(table[".chain"] == 1)
    assert np.array_equal(table[".iteration"], np.arange(1, 13))
    assert np.array_equal(table["share[1]"], DRAWS["share"][:, 1])


@pytest.mark.parametrize("kind", ["chains", "islands"])
def test_rows_say_which_chain_they_are_of(kind, tmp_path):
    posterior = replace(nw.Posterior(DRAWS, ("x", "share"), **TOLD), **{kind: 3})
    table = read(posterior, tmp_path)
    held = posterior.to_arviz()["posterior"]["x"].values
    assert np.array_equal(held[table[".chain"] - 1, table[".iteration"] - 1], table["x"])
    assert np.array_equal(table[".draw"], np.arange(1, 13))
    assert (table[".chain"].max(), table[".iteration"].max()) == (3, 4)


def test_weights_have_the_name_that_r_gives_them(tmp_path):
    posterior = nw.Posterior(DRAWS, ("x", "share"), log_weights=-np.arange(12.0), **TOLD)
    table = read(posterior, tmp_path)
    assert np.array_equal(table[".log_weight"], posterior.log_weights)
    assert "log_weight" not in table


def test_truth_values_are_numbers(tmp_path):
    posterior = nw.Posterior(DRAWS, ("x", "share"), **TOLD).derive(
        large=lambda x: x > 7, both=lambda share: share > 0.5
    )
    posterior.to_csv(tmp_path / "draws.csv")
    assert "True" not in (tmp_path / "draws.csv").read_text()
    table = pd.read_csv(tmp_path / "draws.csv")
    assert np.array_equal(table["large"], 1 * posterior["large"])
    assert np.array_equal(table["both[1]"], 1 * posterior["both"][:, 1])


def test_no_draws_and_no_folder(tmp_path):
    nothing = nw.Posterior({"x": np.zeros(0)}, ("x",), **TOLD, status="interrupted")
    assert list(read(nothing, tmp_path).columns) == [".chain", ".iteration", ".draw", "x"]
    with pytest.raises(nw.InputError, match="must be writable"):
        nothing.to_csv(tmp_path / "nowhere" / "draws.csv")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_the_script_of_the_page_runs_in_r(tmp_path):
    """Its blocks in a row; what they print is what the page says."""
    blocks = BLOCK.findall(PAGE.read_text())
    (tmp_path / "page.R").write_text("\n".join(block for kind, block in blocks if kind == "r"))
    command = tmp_path / "noisewise"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m noisewise "$@"\n')
    command.chmod(0o755)
    paths = [str(tmp_path), os.environ["PATH"]]
    sources = [str(Path(nw.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PATH": os.pathsep.join(paths), "PYTHONPATH": os.pathsep.join(filter(None, sources))}
    environment |= {"RETICULATE_PYTHON": sys.executable}
    ran = subprocess.run(["Rscript", "page.R"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == "".join(block for kind, block in blocks if kind == "output").split()
