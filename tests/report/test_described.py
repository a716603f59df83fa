"""A release told to people, to OpenDP's registry and to data portals."""

import hashlib
import json

import pytest
import yaml

import noisewise as nw
from noisewise.cli import main
from noisewise.report import croissant, registry
from noisewise.report.described import described

COUNTS = nw.DiscreteLaplace(epsilon=0.5, sensitivity=1.0).under("add-remove")
SMOKERS = COUNTS.released([83, 12], coords={"county": ["Bronx", "Kings"]}).described(
    "Adults who smoke", unit="persons", bounds=(0, 1), records=4312
)


def full():
    return nw.Release(smokers=SMOKERS, drinkers=COUNTS.released(7)).described(
        "Health survey: 2025",
        description="Counts of “habits”.",
        source="Office of Statistics",
        date="2026-03-01",
        licence="https://creativecommons.org/licenses/by/4.0/",
        contact="statistics@example.org",
        privacy_unit="a person",
        extra={"doi": "10.1/2"},
    )


def saved(release, tmp_path):
    release.save(tmp_path / "release.json")
    return tmp_path / "release.json"


def run(arguments):
    """Runs the command line in this process; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


# For people ------------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_describe_tells_all_that_is_said(tmp_path, capsys):
    assert run(["describe", saved(full(), tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for part in (
        "Health survey: 2025 Counts of “habits”.",
        "Source: Office of Statistics Published: 2026-03-01 Licence: https",
        "Contact: statistics@example.org Unit of privacy: a person",
        "smokers: Adults who smoke; entries by county (Bronx, Kings); in persons.",
        "Each record was first clamped to 0 to 1. There were 4,312 records.",
        "drinkers got",
        "All of it together is 1-differentially private: with and without any one record",
        "A record is that of a person.",
        "Further fields: doi.",
    ):
        assert part in told, part
    assert "83" not in told, "published values are left to the file"


def test_a_bare_release_is_described_too():
    told = described(nw.Release(count=nw.Laplace(scale=5.0).released(37.4)))
    assert told.startswith("A release without a title.\n\nWhat was published\n  - count got Laplace noise")
    assert "states no privacy guarantee" in told


def test_many_labels_are_not_all_listed():
    release = nw.Release(x=nw.Laplace(scale=1.0).released([0.0] * 100, coords={"year": list(range(1900, 2000))}))
    assert "entries by year (100: 1900, 1901, 1902, 1903, ..., 1999)" in " ".join(described(release).split())


def test_a_part_says_so(tmp_path, capsys):
    assert run(["describe", saved(full().select("drinkers"), tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "All of it together, with smokers, which is not used here, is 1-differentially private" in told


def test_describe_as_json(tmp_path, capsys):
    assert run(["describe", saved(full(), tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["about"]["title"] == "Health survey: 2025"
    assert told["statistics"]["smokers"]["shape"] == [2]
    assert "value" not in told["statistics"]["smokers"]


def test_a_file_that_is_no_release_is_a_mistake(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    for command in ("describe", "registry", "croissant"):
        assert run([command, tmp_path / "x.json"]) == 2
        assert "'format' must be 'noisewise-release'" in capsys.readouterr().err


# The registry ----------------------------------------------------------------------------------------------------

FIELDS = {
    "basic": {
        *("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"),
        *("data_product_sector", "publication_date"),
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        *("privacy_unit", "privacy_unit_details", "number_of_privacy_units", "privacy_parameters"),
        "privacy_parameters_details",
    },
    "deployment_model": {
        *("model_name", "model_name_details", "trust_assumptions", "actors", "release_type", "release_type_details"),
        *("data_source_type", "data_source_type_details", "access_type", "access_type_details"),
    },
    "implementation": {
        *("preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing", "justification"),
        *("utility", "additional_information"),
    },
    "administrative": {"evidence_sources", "status", "registry_authors", "tier"},
}
"""Every field of the registry's schema, which refuses others."""


@pytest.mark.quick
def test_an_entry_has_the_fields_of_the_registry_and_no_others(tmp_path, capsys):
    assert run(["registry", saved(full(), tmp_path)]) == 0
    printed = capsys.readouterr()
    entry = yaml.safe_load(printed.out)
    assert entry == registry.entry(full()), "the YAML says what the data say"
    assert set(entry) == {"url_slug", "deployment"}
    assert set(entry["deployment"]) <= set(FIELDS)
    for table, fields in entry["deployment"].items():
        assert set(fields) <= FIELDS[table]
    assert entry["url_slug"] == "health-survey-2025"
    basic, loss = entry["deployment"]["basic"], entry["deployment"]["privacy_loss"]
    assert basic["data_curators"] == [{"data_curator_name": "Office of Statistics", "data_curator_type": ""}]
    assert basic["publication_date"] == "2026-03-01"
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert "number of records of smokers" in entry["deployment"]["dp_variant"]["unprotected_quantities"]
    assert loss["privacy_parameters"] == {"epsilon": 1.0}
    assert loss["privacy_unit"] == "a person"
    for field in ("intended_use", "data_curator_type", "model_name"):
        assert f"{field}: ''  # to be filled in" in printed.out
        assert field in printed.err


KINDS = {
    "approximate": (
        nw.Gaussian(epsilon=0.5, delta=1e-6, sensitivity=1.0),
        "Approximate DP",
        {"epsilon": 0.5, "delta": 1e-6},
    ),
    "concentrated": (nw.Gaussian(rho=0.5, sensitivity=1.0), "Zero-concentrated DP", {"rho": 0.5}),
    "Gaussian": (nw.Gaussian(mu=2.0, sensitivity=1.0), "Zero-concentrated DP", {"rho": 2.0}),
}


@pytest.mark.parametrize(("mechanism", "variant", "parameters"), KINDS.values(), ids=KINDS)
def test_every_kind_of_guarantee_has_its_words(mechanism, variant, parameters):
    entry = yaml.safe_load(registry.to_yaml(registry.entry(nw.Release(x=mechanism.released(1.0)))))
    assert entry["deployment"]["dp_variant"]["variant_name"] == variant
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == parameters


def test_what_states_no_guarantee_is_of_the_first_tier():
    entry = registry.entry(nw.Release(x=nw.Laplace(scale=1.0).released(1.0), n=nw.Exact().released(5)))
    assert entry["deployment"]["administrative"]["tier"] == 1
    assert "privacy_parameters" not in entry["deployment"]["privacy_loss"]
    assert entry["deployment"]["dp_variant"] == {"unprotected_quantities": "Published without noise: n."}


# Data portals ----------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_sidecar_describes_the_file(tmp_path, capsys):
    path = saved(full(), tmp_path)
    assert run(["croissant", path, "--url", "https://example.org/health", "--out", tmp_path / "croissant.json"]) == 0
    assert capsys.readouterr().err == ""
    content = json.loads((tmp_path / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert content["@type"] == "sc:Dataset"
    assert content["name"] == "Health survey: 2025"
    assert content["creator"]["name"] == "Office of Statistics"
    (file,) = content["distribution"]
    assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    (records,) = content["recordSet"]
    known = {field["@id"] for field in records["field"]}
    assert all(set(row) <= known for row in records["data"])
    assert [row["statistics/name"] for row in records["data"]] == ["smokers", "drinkers"]
    assert [row["statistics/entries"] for row in records["data"]] == [2, 1]
    prefixes = {word.split(":")[0] for word in _types(content)}
    assert prefixes <= set(content["@context"]), "every prefix is defined"
    assert run(["croissant", path, "--out", tmp_path / "croissant.json"]) == 2
    assert "must be a new file" in capsys.readouterr().err


def _types(content):
    if isinstance(content, dict):
        own = [content[key] for key in ("@type", "dataType") if isinstance(content.get(key), str)]
        return [word for word in own if ":" in word] + [word for part in content.values() for word in _types(part)]
    return [word for item in content for word in _types(item)] if isinstance(content, list) else []


def test_a_sidecar_says_what_is_missing(tmp_path):
    release = nw.Release(count=nw.Laplace(scale=5.0).released(37.4))
    path = saved(release, tmp_path)
    content = croissant.sidecar(release, path.name, path.read_bytes())
    assert croissant.missing(content) == ["name", "license", "url", "creator", "datePublished"]
    assert content["description"].startswith("Statistics published with privacy noise: count.")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the reader's own libraries
def test_an_independent_reader_takes_the_sidecar(tmp_path):
    """MLCommons' own reader of Croissant: it complains of nothing that is required, and finds the statistics."""
    import mlcroissant

    path = saved(full(), tmp_path)
    content = croissant.sidecar(full(), path.name, path.read_bytes(), "https://example.org/health")
    (tmp_path / "croissant.json").write_text(json.dumps(content))
    found = mlcroissant.Dataset(tmp_path / "croissant.json")
    assert not found.metadata.issues.errors
    assert [row["statistics/name"] for row in found.records("statistics")] == ["smokers", "drinkers"]
    assert [row["statistics/entries"] for row in found.records("statistics")] == [2, 1]
    del content["recordSet"][0]["data"][1]["statistics/unit"]
    (tmp_path / "spoilt.json").write_text(json.dumps(content))
    with pytest.raises(mlcroissant.ValidationError, match="expected columns"):
        mlcroissant.Dataset(tmp_path / "spoilt.json")
