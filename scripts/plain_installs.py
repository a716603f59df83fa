"""Install noisewise as users do, and do what users do: `make plain`, or `python scripts/plain_installs.py [NAME ...]`.

The developers' environment has every extra, so it cannot tell when a plain install lacks a package. Here a wheel of the
checkout is installed without extras, and then with each extra alone, every time in an environment of its own under
build/plain, and real commands run there. A step passes if it ends as it should, prints what it should and warns of
nothing; a warning that comes from our own code is an error.
"""

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAIN = ROOT / "build/plain"
STARTERS = sorted(
    file.stem for file in (ROOT / "src/noisewise/analysis/starters").glob("*.toml") if file.stem != "design"
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OWN_WARNINGS = r"""
import warnings
warnings.filterwarnings("error", module=r"noisewise(\.|\Z)")
"""
"""A sitecustomize module: real commands run with it, and so do the processes they start."""

COUNT = """
import numpyro.distributions as dist
import noisewise as nw

release = nw.Release(count=nw.Laplace(epsilon=0.2, sensitivity=1.0).released(37.4))
model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": lambda theta: dist.Poisson(theta)})
"""
FILES = """
posterior = nw.sample(model, release, draws=500, seed=1)
posterior.save("run.nc")
assert (nw.Posterior.load("run.nc")["theta"] == posterior["theta"]).all()
release.save("again.json")
assert nw.Release.load("again.json") == release
nw.plot(posterior, prior=model).savefig("posterior.png")
assert posterior.to_arviz()["posterior"].sizes["draw"] == 500
assert len(posterior.to_pandas()) == 500
found = nw.fit(model, release, seed=1)
nw.plot_trace(found).savefig("trace.png")
print(posterior, found)
"""
SAME_DRAWS = """
def simulate(rng, theta):
    return float(rng.poisson(theta))

model = nw.Model(prior={"theta": dist.Gamma(25.0, 1.0)}, statistics={"count": nw.Simulator(simulate)})
by_threads = nw.sample(model, release, nw.Rejection(), draws=300, seed=1)

def compare(engine):
    elsewhere = nw.sample(model, release, nw.Rejection(), draws=300, seed=1, engine=engine)
    assert (by_threads["theta"] == elsewhere["theta"]).all()
    print("the same draws")
"""
PROCESSES = """
with nw.Processes(2) as engine:
    compare(engine)
"""
DASK = """
from dask.distributed import Client

if __name__ == "__main__":  # the cluster's workers import this file
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        compare(nw.Dask(client))
"""
ARVIZ = """
import arviz_plots
import arviz_stats

tree = nw.sample(model, release, nw.MCMC(chains=4), draws=2000, seed=1).to_arviz()
table = arviz_stats.summary(tree)
assert {"theta", "count"} <= set(table.index)
assert float(arviz_stats.ess(tree)["theta"]) > 100
arviz_plots.plot_dist(tree, backend="matplotlib").savefig("arviz.png")
print(table)
"""
PARQUET = """
import pandas

table = {"county": ["01001", "01003"], "count": [31, 212], "variance": [100.0, 25.0]}
pandas.DataFrame(table).to_parquet("counts.parquet", engine="pyarrow")
how = {"value": "count", "mechanism": "DiscreteGaussian", "variance": "variance", "index": "county"}
assert nw.Release.from_table("counts.parquet", **how) == nw.Release.from_table(table, **how)
print("the same release")
"""
WITHOUT_PARQUET = """
open("counts.parquet", "w").close()
nw.Release.from_table("counts.parquet", value="count", mechanism="Laplace", scale=1.0)
"""
LINE = """
import noisewise as nw

release = nw.Release(cases=nw.Laplace(scale=1.0).released([1.2, 3.1, 2.2, 6.4]))
model = nw.regression("cases ~ x", release, family="poisson", data={"x": [-1.0, 0.0, 0.5, 1.0]})
print(nw.sample(model, release, draws=500, seed=1).summary())
"""
PYMC = """
import warnings

# ArviZ, which PyMC imports, announces its next version
warnings.filterwarnings("ignore", message="\\s*ArviZ is undergoing", category=FutureWarning)
import pymc as pm
import noisewise.pymc

with pm.Model():
    theta = pm.Gamma("theta", 25.0, 1.0)
    noisewise.pymc.Privatised("count", pm.Poisson.dist(theta), nw.Laplace(scale=5.0), observed=37.4)
    found = pm.sample(500, chains=2, cores=1, random_seed=1, progressbar=False)
    predicted = pm.sample_posterior_predictive(found, random_seed=1, progressbar=False)
assert 25.0 < float(found.posterior["theta"].mean()) < 32.0
assert predicted.posterior_predictive["count"].shape == (2, 500)
print("theta", float(found.posterior["theta"].mean()))
"""
PEOPLE = "smokes,age,region,ever_used\nyes,30,north,no\nno,51,west,yes\nno,44,south,no\n"


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing a user does: a command or a script, its exit code, and a pattern that it prints."""

    name: str
    command: tuple[str, ...]
    prints: str = ""
    code: int = 0
    files: tuple[str, ...] = ()


def typed(line: str, prints: str = "", code: int = 0, files: tuple[str, ...] = ()) -> Step:
    """A command as a user types it."""
    return Step(line, tuple(line.split()), prints, code, files)


def script(name: str, *parts: str, prints: str = "", code: int = 0, files: tuple[str, ...] = ()) -> Step:
    """A Python file that a user has written."""
    return Step(name, ("python", "".join(parts)), prints, code, files)


def page(name: str) -> str:
    """The Python of a page, top to bottom."""
    return "\n".join(text for kind, text in BLOCK.findall((ROOT / name).read_text()) if kind == "python")


RESULTS = ("report.html", "summary.csv", "draws.csv", "posterior.nc", "figures/posterior.png", "run.json")
STEPS: dict[str, list[Step]] = {
    "plain": [
        *(
            typed(f"noisewise new {kind}", rf"noisewise check {kind}\.toml", files=(f"{kind}.toml",))
            for kind in STARTERS
        ),
        *(typed(f"noisewise check {kind}.toml", "in order.*Forecast") for kind in STARTERS),
        typed(
            "noisewise fit count.toml --quiet --checkpoint run.nwc",
            "theta.*status complete.*Report",
            files=("run.nwc", *(f"count-results/{name}" for name in RESULTS)),
        ),
        typed("noisewise status run.nwc", "ended: +complete"),
        typed("noisewise report count-results", r"Report: .*report\.html"),
        typed("noisewise compare count.toml --out compared --quiet", "naive.*exact", files=("compared/report.html",)),
        typed(
            "noisewise mle count.toml --quiet", "theta.*by EM", files=("count-mle/report.html", "count-mle/fit.json")
        ),
        *(
            typed(
                f"noisewise fit {kind}.toml --quiet", "Verdict: Trust it.*Report", files=(f"{kind}-results/draws.csv",)
            )
            for kind in STARTERS
            if kind != "count"
        ),
        *(
            typed(f"noisewise mle {kind}.toml --quiet", "Verdict: Trust it.*Report", files=(f"{kind}-mle/fit.json",))
            for kind in ("rate", "response", "histogram")  # the others say why they cannot
        ),
        typed("noisewise new design", r"noisewise check design\.toml", files=("design.toml",)),
        typed("noisewise check design.toml", "in order, as a plan.*Next: noisewise design"),
        typed("noisewise design design.toml --quiet --out found", "epsilon = .*Report", files=("found/report.html",)),
        typed("noisewise calibrate count.toml --replicates 40 --draws 500 --quiet", "calibrated"),
        typed("noisewise demo", "Picture", files=("noisewise-demo.png",)),
        script("files and pictures", COUNT, FILES, prints="status complete", files=("posterior.png", "trace.png")),
        script("docs/getting-started.md", page("docs/getting-started.md"), prints="Posterior: 10,000 draws"),
        # what is not installed is named, with the extra that has it
        typed("noisewise serve --no-browser", r"noisewise\[page\]", code=2),
        typed("noisewise release people.csv plan.toml --yes --out noisy.json", r"noisewise\[opendp\]", code=2),
        script("nw.Processes", COUNT, SAME_DRAWS, PROCESSES, prints=r"noisewise\[processes\]", code=1),
        script("a table in Parquet", COUNT, WITHOUT_PARQUET, prints=r"noisewise\[parquet\]", code=1),
        script("nw.Dask", COUNT, "nw.sample(model, release, engine=nw.Dask())", prints=r"noisewise\[dask\]", code=1),
        script("nw.regression", LINE, prints=r"noisewise\[formula\]", code=1),
        script("noisewise.pymc", "import noisewise.pymc", prints=r"noisewise\[pymc\]", code=1),
    ],
    "page": [Step("noisewise serve --no-browser --port 0", ("serve",))],
    "opendp": [
        typed(
            "noisewise release people.csv plan.toml --yes",
            "smokers.*epsilon.*Release",
            files=("release.json", "release.toml"),
        ),
        script(
            "analyse the release", "import noisewise as nw\nprint(nw.Release.load('release.json'))", prints="smokers"
        ),
    ],
    "dask": [script("nw.Dask on two workers", COUNT, SAME_DRAWS, DASK, prints="the same draws")],
    "processes": [script("nw.Processes(2)", COUNT, SAME_DRAWS, PROCESSES, prints="the same draws")],
    "parquet": [script("a table in Parquet", COUNT, PARQUET, prints="the same release")],
    "formula": [script("nw.regression", LINE, prints=r"beta\[x\]")],
    "pymc": [script("a PyMC model", COUNT, PYMC, prints="theta")],
    "arviz": [script("ArviZ's functions", COUNT, ARVIZ, prints="theta", files=("arviz.png",))],
}


def wheel(folder: Path) -> Path:
    """A wheel of the checkout, built from a copy: what an earlier build has left behind is not in it."""
    with tempfile.TemporaryDirectory() as copy:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        shutil.copytree(ROOT / "src", Path(copy) / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        pip("wheel", "--no-deps", "--wheel-dir", str(folder), copy)
    [built] = folder.glob("noisewise-*.whl")
    return built


def pip(*arguments: str) -> None:
    """Run pip as it is set up on this machine."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


class Environment:
    """A virtual environment with the wheel and at most one extra, and a folder to work in."""

    def __init__(self, name: str) -> None:
        self.name, self.folder = name, PLAIN / name
        self.desk = self.folder / "desk"
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")
        self.variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        self.variables["PATH"] = os.pathsep.join((str(self.bin), os.environ["PATH"]))

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        [found] = self.folder.glob("[Ll]ib/**/site-packages")
        return found

    def install(self, built: Path, base: "Environment | None") -> None:
        """Make it. Packages that `base` has are linked, not unpacked again, and pip adds what the extra lacks."""
        venv.create(self.folder, with_pip=False)
        self.desk.mkdir()
        if base is not None:
            shutil.copytree(
                base.packages,
                self.packages,
                copy_function=os.link,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("noisewise*", "sitecustomize.py"),
            )
        extra = "" if base is None else f"[{self.name}]"
        pip("--python", str(self.bin / "python"), "install", "--no-compile", f"{built}{extra}")
        (self.packages / "sitecustomize.py").write_text(OWN_WARNINGS)
        [plan] = [text for kind, text in BLOCK.findall((ROOT / "docs/curators.md").read_text()) if kind == "toml"]
        (self.desk / "plan.toml").write_text(plan)
        (self.desk / "people.csv").write_text(PEOPLE)

    def run(self, step: Step) -> None:
        """Do what the step says, and complain if it does not go as it should."""
        output, code = self._serve() if step.command[0] == "serve" else self._command(step)
        if code != step.code:
            raise RuntimeError(f"exit code {code}, not {step.code}\n{output}")
        if not re.search(step.prints, output, re.DOTALL):
            raise RuntimeError(f"does not print '{step.prints}'\n{output}")
        if re.search("Warning", output) or (code != 1 and "Traceback" in output):
            raise RuntimeError(f"warns, or ends in a stack trace\n{output}")
        for name in step.files:
            if not (self.desk / name).is_file() or not (self.desk / name).stat().st_size:
                raise RuntimeError(f"has not written {name}\n{output}")

    def _command(self, step: Step) -> tuple[str, int]:
        command = [str(self.bin / step.command[0]), *step.command[1:]]
        if step.command[0] == "python":
            file = self.desk / "script.py"
            file.write_text(step.command[1])
            command[1:] = [file.name]
        done = subprocess.run(
            command, cwd=self.desk, env=self.variables, capture_output=True, text=True, timeout=300, encoding="utf-8"
        )
        return done.stdout + done.stderr, done.returncode

    def _serve(self) -> tuple[str, int]:
        """Start the page, look at it, and end it as a terminal does."""
        command = [str(self.bin / "noisewise"), "serve", "--no-browser", "--port", "0"]
        with subprocess.Popen(
            command, cwd=self.desk, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as server:
            try:
                assert server.stdout is not None
                first = server.stdout.readline()
                address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", first)
                if address:
                    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine, no proxy
                    with direct.open(address[0], timeout=60) as answer:
                        if answer.status != 200 or b"noisewise" not in answer.read().lower():
                            raise RuntimeError("the page is not the one expected")
                    server.send_signal(signal.SIGINT)
                output, _ = server.communicate(timeout=60)
            finally:
                server.kill()
        if not address:
            raise RuntimeError(f"says no address\n{first}{output}")
        return first + output, server.returncode


def outcomes(names: list[str]) -> Iterator[bool]:
    """Do every step of the environments named; print one line for each."""

    def timed(place: str, name: str, action: Callable[[], object]) -> bool:
        start, complaint = time.monotonic(), ""
        try:
            action()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            complaint = str(error)
        print(f"{'FAILED' if complaint else 'passed'} {time.monotonic() - start:6.1f} s  {place}: {name}", flush=True)
        if complaint:
            print(complaint, flush=True)
        return not complaint

    shutil.rmtree(PLAIN, ignore_errors=True)
    built = timed("wheel", "pip wheel", lambda: wheel(PLAIN))
    yield built
    if not built:
        return
    [package] = PLAIN.glob("noisewise-*.whl")
    plain = Environment("plain")
    for name in dict.fromkeys(["plain", *names]):  # the others build on it
        environment, base = (plain, None) if name == "plain" else (Environment(name), plain)
        installed = timed(name, "pip install", lambda e=environment, b=base: e.install(package, b))
        yield installed
        if installed and name in names:
            for step in STEPS[name]:
                yield timed(name, step.name, lambda e=environment, s=step: e.run(s))


def main(names: list[str]) -> int:
    """Do them all, or those named; say how many steps passed."""
    start = time.monotonic()
    done = list(outcomes(names or list(STEPS)))
    print(f"{sum(done)} passed, {len(done) - sum(done)} failed in {time.monotonic() - start:.0f} s")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
