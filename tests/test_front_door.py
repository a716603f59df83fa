"""From `noisewise new` to the answer in words, by the installed command and a real browser, without Python."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import DESK, kept, opened, overflow, picture, serious_findings
from scipy import stats

WINDOWS = {
    "desk": {"viewport": {**DESK, "width": 1280}},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "dark": {"viewport": {**DESK, "width": 1280}, "color_scheme": "dark"},
}


def rate():
    """P(rate > 95) of the starter with 61 cases published: Gamma-Poisson and discrete Laplace noise, summed out."""
    cases = np.arange(2_000)
    prior = stats.nbinom.pmf(cases, 4.0, 0.04 / (0.04 + 0.382))
    weight = prior * np.exp(-0.3 * np.abs(61 - cases))
    above = stats.gamma.sf(95.0, 4.0 + cases, scale=1 / (0.04 + 0.382))
    return float(np.sum(weight * above) / np.sum(weight))


def response():
    """P(share > 1/3) of the starter with 512 yes answers: 1/4 + share / 2 is the chance of a reported yes."""
    shares = (np.arange(200_000) + 0.5) / 200_000
    weight = stats.binom.pmf(512, 1000, 0.25 + 0.5 * shares)
    return float(weight[shares > 1 / 3].sum() / weight.sum())


ANALYSES = {
    "rate": (("value = 52", "value = 61"), "The town's rate is above the county's", rate),
    "response": (("value = 462", "value = 512"), "It is true of more than a third", response),
    "means": (("value = 29.4", "value = 31.8"), "The programme raised incomes", None),
}
"""Starters, what the person changes in the file, what is asked for, and the exact probability where it is a sum."""


@pytest.mark.long
@pytest.mark.parametrize("kind", ANALYSES)
def test_from_a_starter_to_the_answer_in_words(kind, chromium, tmp_path):
    change, asked, exact = ANALYSES[kind]
    command = shutil.which("noisewise", path=str(Path(sys.executable).parent))
    assert command is not None, "the package is not installed"

    def noisewise(*arguments):
        done = subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    noisewise("new", kind)
    file = tmp_path / f"{kind}.toml"
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(*change))
    assert f"next: noisewise fit {kind}.toml" in noisewise("check", file.name)
    said = noisewise("fit", file.name, "--quiet")
    assert "Verdict: Trust it." in said
    percent = float(re.search(rf"- {re.escape(asked)}: probability (?:more than )?([\d.]+)%", said)[1])
    if exact is not None:  # independent draws, shown with three digits
        error = np.sqrt(exact() * (1 - exact()) / 10_000)
        assert abs(percent / 100 - exact()) < 5 * error + 1e-3
    for name, options in WINDOWS.items():
        with opened(chromium, tmp_path / f"{kind}-results/report.html", **options) as watched:
            assert asked in watched.page.inner_text("#question")
            assert overflow(watched.page)[0] <= 0
            assert watched.errors == []
            picture(watched.page, kept(f"front-door-{kind}-{name}.png", tmp_path), full_page=True)
            assert serious_findings(watched.page) == []
