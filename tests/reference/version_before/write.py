"""Writes the files of this folder, by the version of noisewise that the README names."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpyro.distributions as dist

import noisewise as nw

HERE = Path(__file__).resolve().parent
ANALYSIS = """\
[question]
title = "Visitors of a clinic"

[release.count]
value = 37.4
mechanism = "Laplace"
epsilon = 0.2
sensitivity = 1.0

[parameters]
theta = "Gamma(25, 1)"

[statistics]
count = "Poisson(theta)"

[inference]
draws = 100
seed = 7
"""
OPTIONS = {"draws": 40, "seed": 7, "on_failure": "return", "progress": False}


def columns(posterior):
    """Draws, and log weights where there are any, as plain numbers: an infinite one as text."""
    found = {**posterior.draws, **({} if posterior.log_weights is None else {"log_weights": posterior.log_weights})}
    return {
        name: [one if math.isfinite(one) else str(one) for one in values.tolist()] for name, values in found.items()
    }


def main():
    model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
    release = nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))
    release.save(HERE / "release.json")
    numbers = {"release": {"value": 37.4, "scale": 5.0, "hash": release.hash}}
    for name, sampler in (("posterior", nw.Rejection()), ("weighted", nw.Importance())):
        posterior = nw.sample(model, release, sampler, **OPTIONS)
        posterior.save(HERE / f"{name}.nc")
        numbers[name] = {"status": posterior.status, "columns": columns(posterior)}
        numbers[name] |= {"summary": posterior.summary().to_dict("index"), "log_evidence": posterior.log_evidence}
    (HERE / "run.nwc").unlink(missing_ok=True)
    sharp = nw.Release(count=nw.Laplace(scale=0.5).released(37.4))  # of little noise, so that few draws are kept
    checkpointed = nw.sample(model, sharp, nw.Rejection(), checkpoint=HERE / "run.nwc", **OPTIONS)
    numbers["run"] = {"columns": columns(checkpointed)}
    (HERE / "analysis.toml").write_text(ANALYSIS)
    for command in ("fit", "mle"):
        words = [command, "analysis.toml", "--out", command, "--quiet"]
        subprocess.run([sys.executable, "-m", "noisewise", *words], cwd=HERE, check=True)
        for file in (*HERE.glob(f"{command}/figures/*"), HERE / command / "report.html"):
            file.unlink(missing_ok=True)  # for people, and large
        if (HERE / command / "figures").is_dir():
            (HERE / command / "figures").rmdir()
        numbers[command] = json.loads((HERE / command / "summary.json").read_text())
    (HERE / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
