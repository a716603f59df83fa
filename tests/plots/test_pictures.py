"""Pictures: every part is there, where its numbers put it, with labels and units as they are written."""

import sys

import matplotlib
import numpy as np
import numpyro.distributions as dist
import pytest
from posteriors import cases, rates
from targets import count_model, count_release

import noisewise as nw

matplotlib.use("Agg")


# Posteriors ---------------------------------------------------------------------------------------------------------


def test_plots_show_every_part():
    plain = nw.sample(count_model(), count_release(), nw.Rejection(), draws=500, seed=7)
    weighted = nw.sample(count_model(), count_release().naive(), nw.Importance(), draws=2_000, seed=7)
    figure = nw.plot(plain, prior=count_model(), naive=weighted)
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {"exact posterior", "naive posterior", "prior", "released value"}
    with pytest.raises(nw.InputError, match="must be names of the posterior"):
        nw.plot(plain, names=["nope"])


def test_every_entry_has_a_panel():
    model = nw.Model(
        prior={"share": dist.Dirichlet(np.ones(3))},
        statistics={"cells": lambda share: dist.Multinomial(15, share)},
    )
    release = nw.Release(cells=nw.DiscreteGaussian(scale=2.0).released([7, 2, 5]))
    vector = nw.sample(model, release, nw.Rejection(), draws=500, seed=7)
    assert len(nw.plot(vector).axes) == 6
    assert len(nw.plot(vector, names=["share"]).axes) == 3


def test_plot_follows_the_weighted_posterior():
    """A wide prior must not stretch the picture of a narrow posterior, and its line must have its height there."""
    model = nw.Model(
        prior={"scale": dist.HalfCauchy(1.0)}, statistics={"s": lambda scale: dist.Normal(0.0, scale).expand([50])}
    )
    release = nw.Release(s=nw.Exact().released(np.linspace(-2.0, 2.0, 50)))
    posterior = nw.sample(model, release, nw.Importance(), draws=20_000, seed=1)
    axis = nw.plot(posterior, names="scale", prior=model).axes[0]
    low, high = axis.get_xlim()
    assert high - low < 3.0
    (line,) = [line for line in axis.get_lines() if line.get_label() == "prior"]
    x, y = line.get_data()
    assert np.interp(1.2, x, y) == pytest.approx(2 / np.pi / (1 + 1.2**2), rel=0.25)


def test_pictures_name_entries_as_they_are_written():
    """A dollar sign in a label is no formula."""
    named = nw.Model(
        {"rate": dist.Gamma(2.0, 0.1).expand([2])},
        {"cases": lambda rate: dist.Poisson(rate)},
        dims={"rate": ("price",)},
    )
    release = nw.Release(cases=nw.Laplace(scale=1.0).released([3.0, 4.0], {"price": [r"$\nothing$", "$1"]}))
    figure = nw.plot(nw.sample(named, release, nw.Rejection(), draws=100, seed=1))
    figure.canvas.draw()
    assert figure.axes[0].get_xlabel() == r"rate[$\nothing$]"


def test_pictures_say_the_unit_that_the_release_states():
    release = nw.Release(total=nw.Laplace(scale=2.0).released(31.0).described(unit="euros"))
    model = nw.Model({"theta": dist.Normal(30.0, 5.0)}, {"total": lambda theta: dist.Normal(theta, 1.0)})
    posterior = nw.sample(model, release, nw.Rejection(), draws=200, seed=1)
    assert [axis.get_xlabel() for axis in nw.plot(posterior).axes] == ["theta", "total (confidential, euros)"]
    forest = nw.plot_forest({"exact": posterior}, names=["total", "theta"])
    assert [axis.get_xlabel() for axis in forest.axes] == ["total (euros), 95% intervals", "theta, 95% intervals"]


# Others -------------------------------------------------------------------------------------------------------------


def test_a_forest_plot_has_a_row_for_each_entry_and_a_mark_for_each_result():
    exact = rates()
    figure = nw.plot_forest({"naive": exact, "exact": exact}, names=["rate", "large"])
    [axis] = [axis for axis in figure.axes if axis.get_visible()]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["A&B", "C|D"]
    assert len(axis.lines) == 8
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"naive", "exact"}
    low, high = (float(end[1]) for end in exact.interval()["rate"])
    assert tuple(axis.lines[2].get_xdata()) == (low, high)
    assert len(nw.plot_forest(exact).legends) == 0


def test_pairs_have_labels_and_units_on_their_axes(tmp_path):
    posterior = cases()
    pytest.importorskip("arviz_plots")
    figure = nw.plot_pairs(posterior)
    figure.savefig(tmp_path / "pairs.png")  # a $ in a unit is no formula
    rows = ["Cases, Bronx (per $1,000)", "Cases, $Kings (per $1,000)", "Ratio of rates"]
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert {axis.get_xlabel().replace("\n", " ") for axis in shown} - {""} == set(rows)
    assert {axis.get_ylabel().replace("\n", " ") for axis in shown} - {""} == {"density", *rows[1:]}
    points = [np.asarray(axis.collections[0].get_offsets()) for axis in shown if axis.collections]
    expected = [posterior["rate"][:, 0], posterior["rate"][:, 1], posterior["ratio"]]
    pairs = {(row, column) for row in range(3) for column in range(row)}
    for cloud in points:
        at = [next(i for i, values in enumerate(expected) if np.allclose(values, cloud[:, side])) for side in (1, 0)]
        pairs.discard(tuple(at))
    assert not pairs


def test_without_arviz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    with pytest.raises(
        nw.InputError, match=r"needs ArviZ to be drawn; got None\. Run pip install 'noisewise\[arviz\]'"
    ):
        nw.plot_pairs(cases())


def test_the_trace_is_drawn(seed):
    em = nw.plot_trace(nw.fit(count_model(), count_release(), start={"theta": 1.0}))
    assert [axis.get_ylabel() for axis in em.axes if axis.get_visible()] == ["theta", "log likelihood"]
    fit = nw.fit(
        count_model(),
        count_release(),
        nw.MCEM(schedule=nw.Ascent(most=4_000), final=20_000),
        start={"theta": 30.0},
        seed=seed,
    )
    figure = nw.plot_trace(fit)
    labels = [axis.get_ylabel() for axis in figure.axes if axis.get_visible()]
    assert labels == ["theta", "rise of Q", "simulated values"]
    path, estimate = figure.axes[0].lines
    assert list(path.get_ydata()) == [float(step["theta"]) for step in fit.trace]
    assert estimate.get_ydata()[0] == fit.estimate["theta"]


REFUSED = {
    "intervals": (lambda: nw.plot_forest(rates(), names=["large"]), "must name quantities that have intervals"),
    "names": (lambda: nw.plot_pairs(cases(), names=["ratios"]), "must be names of the posterior"),
    "constant": (lambda: nw.plot_pairs(cases(), names=["ratio", "one", "more"]), "at least two quantities that vary"),
    "posterior": (lambda: nw.plot_pairs({"p": cases()}), "must be a Posterior"),
    "fit": (lambda: nw.plot_trace("fit"), "'fit' must be a Fit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(nw.InputError, match=message):
        call()
