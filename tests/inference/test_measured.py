"""Statistics measured under other names: what fits, what is refused, labels, files, and the samplers that simulate."""

import json

import jsonschema
import numpy as np
import numpyro.distributions as dist
import pytest
from exactness import agrees, counts_agree
from measured_tables import enumerated, log_law_of, margins, model_of, tallied
from scipy.sparse import csr_array

import noisewise as nw
from noisewise.inference.problem import Problem
from noisewise.release.schema import schema
from noisewise.report import Report

MEAN = np.array([[2.0, 1.0], [0.6, 1.5]])
ROW, COLUMN = margins((2, 2))
NOISE = nw.DiscreteGaussian(variance=1.44)


def released(**parts):
    return nw.Release(
        {name: (mechanism.of("cells", **how).released(value)) for name, (mechanism, how, value) in parts.items()}
    )


@pytest.fixture(scope="module")
def tables():
    return nw.Model(
        {}, {"cells": lambda: dist.Poisson(MEAN).to_event(2)}, dims={"cells": ("tract", "age")},
        coords={"age": ["child", "adult"]},
    )  # fmt: skip


def test_noise_densities_of_all_measurements_multiply(tables):
    release = released(
        detailed=(NOISE, {}, [[3, 0], [2, 1]]),
        by_age=(nw.DiscreteLaplace(scale=0.8), {"axes": "tract"}, [4, 2]),
        total=(nw.Exact(), {"sum": True}, 6),
    )
    problem = Problem(tables, release)
    values = problem.model.simulate(40, 1)
    assert np.array_equal(values["by_age"], values["cells"].sum(axis=1))
    assert np.array_equal(values["total"], values["cells"].sum(axis=(1, 2)))
    expected = nw.DiscreteLaplace(scale=0.8).log_prob(np.array([4, 2]), values["cells"].sum(axis=1)).sum(axis=1)
    assert problem.log_eta("by_age", values) == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(problem.log_eta("total", values) == 0.0, values["total"] == 6)


@pytest.mark.parametrize("sampler", [nw.Rejection(), nw.Importance(), None], ids=["rejection", "importance", "chosen"])
def test_samplers_that_simulate_agree_with_enumeration(sampler, seed):
    release = released(
        detailed=(NOISE, {}, [[3, 0], [2, 1]]), rows=(nw.DiscreteLaplace(scale=0.8), {"axes": 1}, [4, 2])
    )
    identity = np.eye(4, dtype=int)
    flat = nw.Release(
        detailed=NOISE.released([3, 0, 2, 1]), rows=nw.DiscreteLaplace(scale=0.8).released([4, 2])
    )  # the same numbers, each of a vector
    found, chance = enumerated(log_law_of("Poisson", MEAN), flat, {"detailed": identity, "rows": ROW}, 12)
    posterior = nw.sample(model_of("Poisson", MEAN), release, sampler, draws=4000, seed=seed)
    cells = posterior["cells"].reshape(4000, 4)
    if posterior.weights is None:
        assert counts_agree(tallied(cells, found), np.append(chance, 0.0))
    else:
        centred = posterior.weights[:, None] * (cells - chance @ found) * 4000
        assert agrees(centred, 0.0)


def test_one_density_left_out_is_caught(seed):
    release = released(detailed=(NOISE, {}, [[3, 0], [2, 1]]))
    flat = nw.Release(detailed=NOISE.released([3, 0, 2, 1]), rows=nw.DiscreteLaplace(scale=0.8).released([4, 2]))
    matrices = {"detailed": np.eye(4, dtype=int), "rows": ROW}
    found, chance = enumerated(log_law_of("Poisson", MEAN), flat, matrices, 12)
    posterior = nw.sample(model_of("Poisson", MEAN), release, nw.Rejection(), draws=4000, seed=seed)
    assert not counts_agree(tallied(posterior["cells"].reshape(4000, 4), found), np.append(chance, 0.0))


def test_labels_go_with_the_axes_that_are_left(tables):
    release = released(by_age=(NOISE, {"axes": ("tract",)}, [4, 2]), by_tract=(NOISE, {"axes": ["age"]}, [3, 3]))
    posterior = nw.sample(tables, release, nw.Rejection(), draws=200, seed=1)
    assert list(posterior.summary().index[-4:]) == ["by_age[child]", "by_age[adult]", "by_tract[0]", "by_tract[1]"]


def test_axes_are_named_by_a_measurement_of_every_entry(tables):
    coords = {"tract": ["a", "b"], "age": ["child", "adult"]}
    release = nw.Release(
        detailed=NOISE.of("cells").released([[3, 0], [2, 1]], coords),
        by_tract=NOISE.of("cells", axes="age").released([3, 3]),
    )
    problem = Problem(model_of("Poisson", MEAN), release)
    assert problem.axes.dims["by_tract"] == ("tract",)
    assert problem.axes.coords["tract"] == ("a", "b")


def test_files_keep_what_was_measured(tmp_path):
    sparse = csr_array(np.array([[1, 1, 0, 0], [0, 2, 0, -1]]))
    release = released(
        detailed=(NOISE, {}, [[3, 0], [2, 1]]),
        odd=(NOISE, {"matrix": sparse}, [4, 2]),
        by_age=(NOISE, {"axes": ("tract",)}, [4, 2]),
        total=(nw.Exact(), {"sum": True}, 6),
    )
    release.save(tmp_path / "release.json")
    content = json.loads((tmp_path / "release.json").read_text())
    jsonschema.Draft202012Validator(schema()).validate(content)
    assert content["version"] == 2
    again = nw.Release.load(tmp_path / "release.json")
    assert again == release
    assert again["odd"].of.matrix.dense.tolist() == [[1, 1, 0, 0], [0, 2, 0, -1]]
    assert again != released(**{name: (NOISE, {}, [[3, 0], [2, 1]]) for name in ("detailed",)})


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({"statistic": "cells", "sum": True, "axes": ["a"]}, "only one of matrix, axes and sum"),
        ({"sum": True}, "must have statistic"),
        ({"statistic": "cells", "matrix": {"shape": [1, 2]}}, "must have shape, rows, columns and entries"),
        (
            {"statistic": "cells", "matrix": {"shape": [1, 2], "rows": [0], "columns": [2], "entries": [1]}},
            "'columns' must be a list of whole numbers",
        ),
        (
            {"statistic": "cells", "matrix": {"shape": [10**12, 10**12], "rows": [0], "columns": [1], "entries": [1]}},
            "something in every row",
        ),
    ],
)
def test_files_that_say_it_badly_are_refused(of, message):
    entry = {"value": 3, "mechanism": "Exact", "of": of}
    content = {"format": "noisewise-release", "version": 2, "statistics": {"total": entry}}
    with pytest.raises(nw.InputError, match=message):
        nw.Release.from_dict(content)


def refused(message, model, **parts):
    with pytest.raises(nw.InputError, match=message):
        Problem(model, released(**parts))


def test_what_does_not_fit_is_refused(tables):
    refused("a column for each of the 4 entries", tables, rows=(NOISE, {"matrix": [[1, 1, 1]]}, [3]))
    refused("must be axes of 'cells'", tables, rows=(NOISE, {"axes": "race"}, [3, 2]))
    refused("must be axes of 'cells', 2 in number", tables, rows=(NOISE, {"axes": 2}, [3, 2]))
    refused("must have the shape", tables, rows=(NOISE, {"axes": "age"}, [3, 2, 1]))
    refused("must not have the name of a parameter or statistic", tables, cells=(NOISE, {"sum": True}, 3))
    with pytest.raises(nw.InputError, match="must measure a statistic of the model"):
        Problem(tables, nw.Release(total=NOISE.of("cell", sum=True).released(3)))
    exact = nw.Exact()
    refused(
        "must not contradict another exact measurement",
        tables,
        rows=(exact, {"matrix": ROW}, [3, 4]),
        total=(exact, {"sum": True}, 8),
    )
    normal = nw.Model({}, {"cells": lambda: dist.Normal(0.0, 1.0).expand([3]).to_event(1)})
    refused("no sampler conditions on that", normal, total=(exact, {"sum": True}, 8.0))
    with pytest.raises(nw.InputError, match="acts entry by entry"):
        nw.RandomizedResponse(epsilon=1.0, categories=3, on="counts", n=10).of("cells")
    with pytest.raises(nw.InputError, match="whole numbers"):
        NOISE.of("cells", matrix=[[0.5, 1.0]])
    with pytest.raises(nw.InputError, match="only one of matrix, axes and sum"):
        NOISE.of("cells", matrix=[[1]], sum=True)
    with pytest.raises(nw.InputError, match="contradict each other"):
        released(rows=(NOISE, {"sum": True}, 3)).naive()


def test_tables_are_not_summed_out_beside_their_measurements(tables):
    problem = Problem(tables, released(rows=(NOISE, {"sum": True}, 3)))
    rated = nw.Model({"rate": dist.Gamma(2.0, 1.0)}, {"cells": lambda rate: dist.Poisson(rate).expand([2]).to_event(1)})
    problem = Problem(rated, released(rows=(NOISE, {"sum": True}, 3)))
    assert "is a measurement" in nw.NUTS().unfit(problem)
    assert "is a measurement" in nw.Importance(collapse=True).unfit(problem)


def test_calibration_takes_a_release_that_measures(seed):
    model = nw.Model({"rate": dist.Gamma(4.0, 1.0)}, {"cells": lambda rate: dist.Poisson(rate).expand([2]).to_event(1)})
    release = nw.Release(cell=NOISE.of("cells").released([3, 1]), total=NOISE.of("cells", sum=True).released(6))
    calibration = nw.calibrate(model, release, nw.Rejection(), replicates=10, draws=100, seed=seed)
    assert {"rate", "cells[0]", "total"} <= set(calibration.positions)
    assert not calibration.failures


def test_a_report_says_what_was_measured(tmp_path):
    model = nw.Model({"rate": dist.Gamma(4.0, 1.0)}, {"cells": lambda rate: dist.Poisson(rate).expand([2]).to_event(1)})
    release = nw.Release(total=NOISE.of("cells", sum=True).released(6))
    posterior = nw.sample(model, release, nw.Rejection(), draws=500, seed=1)
    Report(model, release, posterior).save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "total, measured of cells, was published: 6" in text
    assert "total (sums over cells) got whole-numbered normal noise" in text
