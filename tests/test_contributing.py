"""CONTRIBUTING: its lists of files are complete, its examples work, and what commands write is up to date."""

import importlib
import json
import pkgutil
import re
from functools import cache
from pathlib import Path

import newcomers
import numpy as np
import pytest
import same_draws
from exactness import LIMIT, agrees, variance_agrees
from mechanism_case import all_cases, families
from mutant import file_of
from mutants.table import MUTANTS, OF_MECHANISMS, OF_SAMPLERS
from sampler_table import SAMPLERS
from targets import all_targets

import noisewise as nw
from noisewise import engine, mechanisms, samplers
from noisewise.inference.problem import Problem
from noisewise.inference.randomness import Purpose
from noisewise.inference.settings import Sampler
from noisewise.likelihood import e_step
from noisewise.likelihood.e_step.cloud import exact_cloud
from noisewise.likelihood.e_step.contract import Drawing, EStep
from noisewise.likelihood.e_step.parts import parts_of
from noisewise.likelihood.e_step.table import E_STEPS
from noisewise.mechanisms import CATALOGUE, Mechanism
from noisewise.release.schema import schema
from noisewise.samplers.choosing.choice import public_samplers

ROOT = Path(__file__).parents[1]
BUDGETS = {"epsilon", "delta", "rho", "mu"}
for room in (mechanisms, samplers, e_step, engine):  # a file that no other imports is seen all the same
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)


def below(cls):
    """The library's own public classes that derive from one, by name."""
    own = [kind for kind in cls.__subclasses__() if kind.__module__.startswith("noisewise.")]
    found = {kind.__name__: kind for kind in own if not kind.__name__.startswith("_")}
    return found | {name: kind for each in own for name, kind in below(each).items()}


MECHANISMS = {name: kind for name, kind in CATALOGUE.items() if kind.__module__.startswith("noisewise.")}
ENGINES = below(engine.Engine)
STEPS = below(EStep)


def text(*names):
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def pages(folder):
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / folder).glob("*.md")))


def example(name):
    """The class of a worked example, from the block of Python that defines it."""
    namespace = {"__name__": "contributed"}
    exec(compile(newcomers.example(name), "CONTRIBUTING.md", "exec", dont_inherit=True), namespace)
    return namespace[name]


@pytest.fixture
def plain_rejection():
    yield example("PlainRejection")
    Sampler.known.pop("PlainRejection")


@pytest.fixture
def logistic():
    yield example("Logistic")
    CATALOGUE.pop("Logistic")


# What a newcomer must not forget ------------------------------------------------------------------------------------


def parts(mechanism):
    """The mechanism, and those that it is made of."""
    inner = [getattr(mechanism, name, None) for name in (*mechanism.fields, *mechanism.static)]
    nested = [one for each in inner for one in (each if isinstance(each, tuple | list) else [each])]
    return [mechanism, *(part for one in nested if isinstance(one, Mechanism) for part in parts(one))]


@cache
def audited():
    names = set()
    for family in families():
        family.audits(lambda name, mechanism, *pairs, **settings: names.add(type(mechanism).__name__))
    return names


@cache
def aimed_at():
    """Names of mechanisms that some target's release is made by."""
    releases = [target.make()[1] for target in all_targets()]
    made = [item.mechanism for release in releases for item in release.values()]
    return {type(part).__name__ for mechanism in made for part in parts(mechanism)}


def needs_audit(kind):
    return any(BUDGETS & set(arguments) for arguments in kind.alternatives)


def has_mutant(*tables):
    """Whether a mistake is planted in the class's file, as test_mutants.py wants of every file of mathematics."""
    return lambda kind: file_of(kind) in {mutant.file for table in tables for mutant in table.values()}


def has_heading(kind):
    return re.search(rf"^##+ {kind.__name__}$", text("docs/mechanisms.md") + pages("docs/mechanisms"), re.MULTILINE)


TABLE = "tests/helpers/families/<family>.py"
WRITTEN = "make catalogue: "
"""Before a file that nobody writes by hand."""
PLACES_OF_MECHANISMS = {
    f"{TABLE}: CASES": lambda kind: kind in {type(case.mechanism) for case in all_cases()},
    # a statistic released without noise does not vary, and has a test of its own in test_samplers.py
    f"{TABLE}: TARGETS": lambda kind: kind is nw.Exact or kind.__name__ in aimed_at(),
    f"{TABLE}: audits": lambda kind: not needs_audit(kind) or kind.__name__ in audited(),
    f"{TABLE}: MUTANTS": has_mutant(*OF_MECHANISMS),
    "docs/mechanisms/<family>.md": has_heading,
    f"{WRITTEN}src/noisewise/mechanisms/__init__.py": lambda kind: kind.__name__ in mechanisms.__all__,
    f"{WRITTEN}src/noisewise/release/release.schema.json": lambda kind: kind.__name__ in schema()["$defs"],
    f"{WRITTEN}docs/mechanisms.md": lambda kind: f"`{kind.__name__}`" in text("docs/mechanisms.md"),
}


def has_pages(folder):
    """Whether a page of the folder names the class's file, and, of derivations, is named by it."""

    def look(kind):
        file = kind.__module__.replace(".", "/") + ".py"
        naming = [page for page in (ROOT / folder).glob("*.md") if f"src/{file})" in page.read_text(encoding="utf-8")]
        if folder == "docs/samplers":
            return bool(naming)
        return any(f"{folder}/{page.name}" in text(f"src/{file}") for page in naming)

    return look


def has_row(file):
    return lambda kind: re.search(rf"\b{kind.__name__}\b", text(file)) is not None


def has_row_with_proof(kind):
    row = rf"^\| \[`{kind.__name__}`\]\(samplers/[\w-]+\.md\).*\(derivations/[\w-]+\.md\)"
    return re.search(row, text("docs/samplers.md"), re.MULTILINE) is not None


def has_word(file):
    return lambda kind: re.search(rf"\b{kind.name}\b", text(file)) is not None


def digested():
    """Names of runs whose digests are kept."""
    return {name for entry in json.loads(text("tests/reference/draws.json")) for name in entry["digests"]}


def has_digests(kind):
    rows = {label: row for label, row in SAMPLERS.items() if type(row.sampler) is kind}
    return bool(rows) and {f"{label}: {name}" for label, row in rows.items() for name in row.digests} <= digested()


PLACES_OF_SAMPLERS = {
    "tests/helpers/sampler_table.py": lambda kind: kind in {type(row.sampler) for row in SAMPLERS.values()},
    "tests/helpers/sampler_table.py: mutants": has_mutant(*OF_SAMPLERS),
    "docs/derivations/<name>.md": has_pages("docs/derivations"),
    "docs/samplers/<name>.md": has_pages("docs/samplers"),
    f"{WRITTEN}src/noisewise/samplers/__init__.py": lambda kind: kind.__name__ in samplers.__all__,
    f"{WRITTEN}src/noisewise/__init__.py": lambda kind: kind.__name__ in nw.__all__,
    f"{WRITTEN}docs/samplers.md": has_row_with_proof,
    f"{WRITTEN}tests/reference/draws.json": has_digests,
}
PLACES_OF_E_STEPS = {
    "src/noisewise/likelihood/e_step/table.py": lambda kind: kind in map(type, E_STEPS.values()),
    "tests/campaigns/mutants/table/likelihood.py": has_mutant(MUTANTS),
    "docs/likelihood.md": lambda kind: f'`"{kind.name}"`' in text("docs/likelihood.md"),
    "docs/derivations/likelihood.md": has_word("docs/derivations/likelihood.md"),
    f"{WRITTEN}tests/reference/draws.json": lambda kind: any(f"MCEM {kind.name}: " in name for name in digested()),
}
PLACES_OF_ENGINES = {
    "tests/engine/test_engines.py": lambda kind: kind is nw.Device or has_row("tests/engine/test_engines.py")(kind),
    "docs/engines.md": has_row("docs/engines.md"),
    f"{WRITTEN}src/noisewise/engine/__init__.py": lambda kind: kind.__name__ in engine.__all__,
    f"{WRITTEN}src/noisewise/__init__.py": lambda kind: kind.__name__ in nw.__all__,
}


def lacking(kind, places):
    """Where a class has been forgotten."""
    return [place for place, has in places.items() if not has(kind)]


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_a_mechanism_is_in_every_file_of_the_list(name):
    assert not lacking(MECHANISMS[name], PLACES_OF_MECHANISMS)


@pytest.mark.parametrize("name", sorted(public_samplers()))
def test_a_sampler_is_in_every_file_of_the_list(name):
    assert not lacking(public_samplers()[name], PLACES_OF_SAMPLERS)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_an_e_step_is_in_every_file_of_the_list(name):
    assert not lacking(STEPS[name], PLACES_OF_E_STEPS)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_an_engine_is_in_every_file_of_the_list(name):
    assert not lacking(ENGINES[name], PLACES_OF_ENGINES)


def listed(heading):
    """(files that a section tells to touch, those that `make catalogue` writes)."""
    section = text("CONTRIBUTING.md").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [re.findall(rf"^{start}.*", section, re.MULTILINE) for start in (r"\d\. ", "Then `make catalogue`")]
    by_hand, written = (re.findall(r"`((?:src|tests|docs)/[^`]+)`", "\n".join(each)) for each in lines)
    return by_hand, written


def wanted(places):
    """The same of what is looked for, the new class's own file left out."""
    by_hand = {place.split(": ")[0] for place in places if not place.startswith(WRITTEN)}
    return by_hand, {place.removeprefix(WRITTEN) for place in places if place.startswith(WRITTEN)}


def is_complete(heading, places):
    """Whether the list, and what is looked for, are the same."""
    (own, *by_hand), written = listed(heading)
    return own.startswith("src/noisewise/") and (set(by_hand), set(written)) == wanted(places)


def test_the_example_of_a_mechanism_lacks_every_file_of_the_list(logistic):
    assert lacking(logistic, PLACES_OF_MECHANISMS) == list(PLACES_OF_MECHANISMS)
    assert is_complete("Adding a mechanism", PLACES_OF_MECHANISMS)


def test_the_example_of_a_sampler_lacks_every_file_of_the_list(plain_rejection, monkeypatch):
    monkeypatch.setattr(plain_rejection, "__module__", "noisewise.samplers.sample")  # a file that names no derivation
    assert lacking(plain_rejection, PLACES_OF_SAMPLERS) == list(PLACES_OF_SAMPLERS)
    assert is_complete("Adding a sampler", PLACES_OF_SAMPLERS)


def test_the_example_of_an_e_step_lacks_every_file_of_the_list():
    assert lacking(example("Multinomial"), PLACES_OF_E_STEPS) == list(PLACES_OF_E_STEPS)
    assert is_complete("Adding an E-step", PLACES_OF_E_STEPS)


def test_the_example_of_an_engine_lacks_every_file_of_the_list():
    assert lacking(example("Here"), PLACES_OF_ENGINES) == list(PLACES_OF_ENGINES)
    assert is_complete("Adding an engine", PLACES_OF_ENGINES)


# Newcomers, planted in a copy -----------------------------------------------------------------------------------------

BY_HAND = {"Adding a mechanism": newcomers.MECHANISM, "Adding a sampler": newcomers.SAMPLER}
OF_NEWCOMERS = "Logistic or logistic or PlainRejection"
GENERIC = (
    *("test_contributing.py", "test_documents.py", "test_mutants.py", "mechanisms/test_catalogue.py"),
    *("mechanisms/test_privacy_audit.py", "samplers/test_samplers.py", "inference/test_settings.py"),
    *("inference/test_randomness.py", "inference/test_same_draws.py", "release/test_release.py"),
    "report/test_report.py",
)
"""Files of tests that go over every mechanism, every sampler or every page."""
COMPLETE = "one_place or up_to_date or listed or schema or " + " or ".join(
    f"every_{each}" for each in ("mechanism", "sampler", "public", "budget", "digest", "file", "mutant", "derivation")
)
"""Tests in them that say whether something is missing."""


def test_a_mechanism_takes_three_files_and_a_sampler_four():
    assert [len(newcomer) for newcomer in BY_HAND.values()] == [3, 4]
    for heading, newcomer in BY_HAND.items():
        assert listed(heading)[0] == list(newcomer)


def test_newcomers_need_nothing_but_the_files_of_the_list_and_the_command(tmp_path):
    """Tests that go over all of a kind take them in, and find that nothing is missing."""
    copy = newcomers.Copy(tmp_path)
    for newcomer in BY_HAND.values():
        copy.plant(newcomer)
    assert len(copy.changed()) == 3 + 4
    copy.make("catalogue")
    told = [place for heading in BY_HAND for places in listed(heading) for place in places]
    assert copy.changed() == set(map(newcomers.name_of, told))
    others = "newcomer or example or objective"  # a mechanism for logistic regression is none of them
    chosen = f"({OF_NEWCOMERS} or {COMPLETE}) and not ({others})"
    said = copy.test(*(f"tests/{file}" for file in GENERIC), "-k", chosen)
    assert re.search(r"^\d\d+ passed, \d+ deselected", said, re.MULTILINE), said


LEFT_OUT = {
    "docs/mechanisms/<family>.md": "docs/mechanisms/<family>.md",
    "tests/helpers/families/<family>.py": "tests/helpers/families/<family>.py: CASES",
    "tests/helpers/sampler_table.py": "tests/helpers/sampler_table.py: mutants",
    "docs/derivations/<name>.md": "docs/derivations/<name>.md",
    "docs/samplers/<name>.md": "docs/samplers/<name>.md",
    "the command": "make catalogue: src/noisewise/mechanisms/__init__.py",
}


@pytest.mark.long
@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_what_a_newcomer_lacks_is_named(left_out, tmp_path):
    copy = newcomers.Copy(tmp_path)
    for newcomer in BY_HAND.values():
        copy.plant({place: content for place, content in newcomer.items() if place != left_out})
    if left_out != "the command":
        copy.make("catalogue")
    said = copy.test("tests/test_contributing.py", "-k", f"({OF_NEWCOMERS}) and every_file_of_the_list")
    assert f"'{LEFT_OUT[left_out]}'" in said, said


# What the command writes ----------------------------------------------------------------------------------------------


@pytest.fixture
def catalogue(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import catalogue

    return catalogue


@pytest.mark.quick
def test_what_the_command_writes_is_up_to_date(catalogue, monkeypatch):
    for name in set(CATALOGUE) - set(MECHANISMS):  # those of other tests
        monkeypatch.delitem(CATALOGUE, name)
    stale = [file for file, make in catalogue.WRITTEN.items() if make() != text(file)]
    assert not stale, "out of date: run make catalogue"


def test_a_name_is_added_where_the_linter_wants_it(catalogue):
    """And no other line changes."""
    file = "src/noisewise/samplers/__init__.py"
    before = text(file).splitlines()
    added = catalogue.with_names(file, {"Plain": "noisewise.samplers.plain"}).splitlines()
    new = ["from noisewise.samplers.plain import Plain", '    "Plain",']
    assert [line for line in added if line not in new] == before
    assert [added[added.index(line) - 1] for line in new] == [
        "from noisewise.samplers.nuts import NUTS",
        '    "ImportanceRejection",',
    ]


# The examples -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target():
    [found] = [each for each in all_targets() if each.name == "hierarchy"]
    return found


def test_the_example_of_a_sampler_is_exact(plain_rejection, target, seed, tmp_path):
    model, release = target.make()
    posterior = nw.sample(model, release, plain_rejection(), draws=20_000, seed=seed, checkpoint=tmp_path / "run.nwc")
    assert posterior.status == "complete"
    truth = target.solve()
    for name in ("level", "rate", "count"):
        mean, variance = truth[name]
        assert agrees(posterior[name], mean)
        assert variance_agrees(posterior[name], variance)
        assert not agrees(posterior[name], mean + 0.1 * np.sqrt(variance))  # negative control


def test_the_example_of_a_sampler_refuses_what_it_cannot_do(plain_rejection):
    from numpyro import distributions as dist

    model = nw.Model({"mu": dist.Normal(0.0, 1.0)}, {"s": lambda mu: dist.Normal(mu, 1.0)})
    with pytest.raises(nw.InputError, match="PlainRejection would never accept"):
        nw.sample(model, nw.Release(s=nw.Exact().released(0.3)), plain_rejection(), draws=10, seed=1)


def test_the_example_of_an_e_step_is_right(monkeypatch, seed):
    """Its clouds have the mean that sums give, and a fit that uses them ends where EM does. Negative controls: a mean
    without the release; twelve Monte Carlo errors from the top."""
    monkeypatch.setitem(E_STEPS, "multinomial", example("Multinomial")())
    model, release = same_draws.count()
    (part,) = parts_of(Problem(model, release))
    values = {"theta": np.asarray(30.0)}
    drawings = [Drawing(seed, nw.Threads(1), Purpose.E_STEP.step(number)) for number in range(60)]
    clouds = [E_STEPS["multinomial"].cloud(drawing, part, values, 0, 2_000) for drawing in drawings]
    means = [float(np.sum(cloud.weights[:, 0] * cloud.values)) for cloud in clouds]
    exact = exact_cloud(part, values)
    assert agrees(means, float(np.sum(exact.weights[:, 0] * exact.values)))
    assert not agrees(means, 30.0)
    top = nw.fit(model, release, nw.EM(), start=values, progress=False).estimate["theta"]
    estimator = nw.MCEM(e_step="multinomial", final=50_000)
    fit = nw.fit(model, release, estimator, start=values, seed=seed, progress=False)
    z = (fit.estimate["theta"] - top) / fit.monte_carlo_error["theta"]
    assert fit.status == "converged"
    assert abs(z) < LIMIT < abs(z + 12.0)


def test_the_example_of_an_engine_gives_the_draws_of_threads(target, seed):
    model, release = target.make()
    here, threads = (
        nw.sample(model, release, nw.Rejection(), draws=2_000, seed=seed, engine=each)
        for each in (example("Here")(), nw.Threads(2))
    )
    assert all(np.array_equal(here[name], threads[name]) for name in ("level", "rate", "count"))


def test_the_example_of_a_mechanism_says_what_it_did(logistic):
    from noisewise.report.noise import sentence

    said = sentence("income", logistic(scale=2.0).released(3.1))
    assert said.startswith("income got logistic noise of scale 2: half of the time less than")


# Names ----------------------------------------------------------------------------------------------------------------

ONE_MEANING = {
    "Importance": "of samples from the model, by a sampler and by an E-step",
    "Rejection": "of samples from the model, by a sampler and by an E-step",
    "Lalonde": "the data set, and its exact posterior",
    "Privatised": "the same law in NumPyro and in PyMC",
    "Table": "what its user calls a table: the curator's confidential one, the analyst's of estimates; both are public",
}
"""Names of classes in several rooms, and why."""


def test_a_class_of_one_name_has_one_meaning():
    rooms = {}
    for path in (ROOT / "src" / "noisewise").rglob("*.py"):
        room = path.relative_to(ROOT / "src" / "noisewise").parts[0]
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            rooms.setdefault(name, set()).add(room)
    assert "Table" in rooms
    assert {name for name, several in rooms.items() if len(several) > 1} <= set(ONE_MEANING)


# The picture --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rooms(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import rooms

    return rooms


def test_the_picture_of_the_rooms_is_the_present_one(rooms):
    drawn = text("CONTRIBUTING.md")
    assert rooms.drawn(drawn) == drawn, "imports between rooms have changed: run make rooms"


def test_an_import_from_above_would_be_seen(rooms):
    """Left of the diagonal in its row, and nothing else is there."""
    floors = rooms.layers()
    names = [room for floor in floors for room in floor]
    pairs = rooms.imports(names)
    assert all(names.index(one) < names.index(other) for one, other in pairs)
    assert len(pairs) > 100
    [row] = [line for line in rooms.drawing(floors, {("errors", "cli")}).splitlines() if " errors " in line]
    assert row.index("x") < row.index("\\")
