"""The command line through its real entry point, and what an import pulls in."""

import os
import subprocess
import sys

import pytest


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "noisewise", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def test_demo_prints_the_table_and_draws_the_picture(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "37.4" in done.stdout
    assert "theta, exact" in done.stdout
    assert "the confidential count" in done.stdout
    picture = (tmp_path / "noisewise-demo.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 10_000


def test_a_mistake_is_one_line_and_an_exit_code():
    done = run("demo", "--draws", "0")
    assert done.returncode == 2
    assert "'draws' must be a whole number, at least 2; got 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help():
    assert run("--version").stdout.strip() == __import__("noisewise").__version__
    assert "demo" in run("--help").stdout


HEAVY = ("pandas", "xarray", "arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "rich", "typer", "h5netcdf")


def test_import_and_sampling_need_only_the_core():
    """With the heavy packages made impossible to import, sampling still runs."""
    script = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None
import noisewise as nw
import numpyro.distributions as dist
model = nw.Model(prior={{"theta": dist.Gamma(25.0, 1.0)}}, statistics={{"count": lambda theta: dist.Poisson(theta)}})
release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))
print(len(nw.sample(model, release, draws=100, seed=1, progress=True)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "100", done.stderr


def test_import_is_light():
    script = f"import sys, noisewise; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_global_changes():
    script = """
import jax, numpy as np, warnings
import noisewise as nw, numpyro.distributions as dist
model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
nw.sample(model, nw.Release(count=nw.Laplace(scale=5.0).released(37.4)), draws=100, seed=1)
print(jax.numpy.ones(1).dtype, jax.config.jax_enable_x64)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["float32", "False"]


def test_progress_bar_appears_in_long_runs():
    pytest.importorskip("rich")
    script = """
import noisewise as nw, numpyro.distributions as dist, noisewise.progress
noisewise.progress.SHOW_AFTER = 0.05
model = nw.Model(prior={"theta": dist.Gamma(2.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
nw.sample(model, nw.Release(count=nw.Laplace(scale=5.0).released(37.4)), draws=20_000, seed=1, progress=True)
"""
    terminal = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "160"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=terminal)
    assert "Rejection" in done.stderr
    assert "draws/s" in done.stderr
    assert "accepted" in done.stderr
