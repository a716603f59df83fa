"""Labels and units: where they come from, and that tables for ArviZ and files have them."""

import numpy as np
import pytest
from posteriors import cases
from targets import count_model

import noisewise as nw
from noisewise.analysis import Analysis, starter
from noisewise.results.naming import Naming
from noisewise.workflow.run import run_posterior


@pytest.fixture
def posterior():
    return cases()


def test_every_variable_has_a_label_and_a_unit_where_one_is_known(posterior):
    variables = posterior.described(units={"stay": "days"}).to_arviz()["posterior"]
    assert variables["rate"].attrs == {"long_name": "Cases", "units": "per $1,000"}
    assert variables["ratio"].attrs == {"long_name": "Ratio of rates"}
    assert variables["stay"].attrs == {"long_name": "stay", "units": "days"}
    assert posterior.to_arviz()["observed_data"]["stay"].attrs == {"long_name": "stay"}


def test_a_release_describes_its_statistics():
    noise = nw.Laplace(scale=2.0)
    release = nw.Release(count=noise.released(31.0).described("Adults who smoke", unit="persons"))
    posterior = nw.sample(count_model(), release, nw.Rejection(), draws=100, seed=1)
    tree = posterior.described(units={"theta": "persons"}).to_arviz(prior=True, posterior_predictive=True)
    said = {"long_name": "Adults who smoke", "units": "persons"}
    for group in ("posterior", "observed_data", "posterior_predictive", "prior"):
        assert tree[group]["count"].attrs == said
    assert tree["posterior"]["theta"].attrs["units"] == "persons"
    assert tree["log_likelihood"]["count"].attrs == {}  # a density is not in persons
    assert nw.plot(posterior, names=["count"]).axes[0].get_xlabel() == "Adults who smoke (confidential, persons)"


def test_files_keep_them_and_draws_stay_numbers(posterior, tmp_path):
    """xarray reads a variable of a file whose unit is "days", or "days since ...", as spans of time or dates."""
    import xarray as xr

    for unit in ("days", "days since admission", "thousand €"):
        posterior.described(units={"stay": unit}).save(tmp_path / "run.nc")
        again = nw.Posterior.load(tmp_path / "run.nc")
        assert again.naming.units["stay"] == unit
        assert again.naming.labels == posterior.naming.labels
        tree = xr.load_datatree(tmp_path / "run.nc", engine="h5netcdf")
        assert np.array_equal(tree["posterior"]["stay"].values.ravel(), posterior["stay"])
        assert tree["posterior"]["ratio"].attrs["long_name"] == "Ratio of rates"
    assert tree["posterior"]["stay"].attrs["units"] == "thousand €"


def test_those_of_an_analysis_file_are_in_its_results():
    text = starter("count").replace("draws = 10000", 'draws = 200\nmethod = "Rejection"')
    results = run_posterior(Analysis.from_text(text, "count.toml"), "fit", progress=False)
    asked = {name: word for name, word in results.analysis.content["words"].items() if isinstance(word, dict)}
    assert asked
    for found in (results.posterior, results.naive):
        for name, word in asked.items():
            assert found.naming.units.get(name) == word.get("unit")
            assert found.to_arviz()["posterior"][name].attrs["long_name"] == word["label"]


def test_what_is_said_later_counts():
    first, second = Naming({"a": "A", "b": "B"}, {"a": "kg"}), Naming({"a": "mass"})
    assert (first | second) == Naming({"a": "mass", "b": "B"}, {"a": "kg"})


REFUSED = {
    "name": (lambda p: p.described(labels={"rates": "Cases"}), "'labels' must be of names of the posterior"),
    "words": (lambda p: p.described(units={"rate": 3}), "'units\\['rate'\\]' must be words that can be printed"),
    "dict": (lambda p: p.described(units="kg"), "'units' must be a dict of words by name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_named_is_refused(case, posterior):
    call, message = REFUSED[case]
    with pytest.raises(nw.InputError, match=message):
        call(posterior)


def test_words_of_a_file_that_are_none_are_refused(posterior, tmp_path, monkeypatch):
    monkeypatch.setattr(nw.Posterior, "_metadata", lambda self, own=nw.Posterior._metadata: own(self) | SPOILED)
    posterior.save(tmp_path / "run.nc")
    with pytest.raises(nw.InputError, match="must be words that can be printed"):
        nw.Posterior.load(tmp_path / "run.nc")


SPOILED = {"naming": {"labels": {"rate": "a\nb"}, "units": {}}}
