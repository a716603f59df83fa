"""Errors keep their parts, which travel between processes with them."""

import pickle
import warnings

import numpyro.distributions as dist
import pytest

import noisewise as nw
from noisewise.analysis.mistakes import mistake_in_words
from noisewise.analysis.toml import FileError
from noisewise.engine.transport import portable
from noisewise.errors import InputError, NoisewiseWarning, Place, WrongMechanism, refusal

PARTS = ("cause", "reason", "who", "argument", "rule", "value", "advice", "instead", "path", "headline")


def refused(call):
    with pytest.raises(InputError) as caught:
        call()
    return caught.value


def total(law):
    return nw.Total({"x": law}, lambda x: x, n=3)


def test_a_refusal_has_its_parts():
    error = refused(lambda: nw.Rejection(plan="clever"))
    assert (error.who, error.argument, error.rule) == (
        "Rejection",
        "plan",
        "must be one of 'divide', 'joint', 'predictive'",
    )
    assert (error.value, error.advice) == ("'clever'", "Choose one.")
    assert str(error) == f"{error.who}: {error.cause}"
    assert error.cause == f"'{error.argument}' {error.rule}; got {error.value}. {error.advice}"
    assert error.headline == "Rejection: 'plan' must be one of 'divide', 'joint', 'predictive'"


def test_plain_text_has_no_parts():
    error = InputError("Something else is wrong.")
    assert str(error) == error.cause == error.headline == "Something else is wrong."
    assert error.who is error.argument is error.rule is error.value is error.advice is None
    assert error.path == ()


@pytest.mark.parametrize(
    ("call", "path", "words"),
    [
        (
            lambda: nw.Model({"theta": dist.Unit(0.0)}, {"s": lambda theta: dist.Normal(theta, 1.0)}),
            ("prior", "theta"),
            "Model.prior['theta']",
        ),
        (
            lambda: nw.Model({"t": dist.Normal(0.0, 1.0)}, {"s": lambda t: 3}),
            ("statistics", "s"),
            "Model.statistics['s']",
        ),
        (
            lambda: nw.Model({}, {"s": total(lambda: 3)}),
            ("statistics", "s", "record", "x"),
            "Model.statistics['s'].record['x']",
        ),
        (lambda: nw.Total({"x": 3}, lambda x: x, n=3), ("record", "x"), "Total.record['x']"),
        (
            lambda: nw.sample(
                nw.Model({"t": dist.Normal(0.0, 1.0)}, {"s": lambda t: dist.Normal(t, 1.0)}),
                nw.Release(s=nw.DiscreteLaplace(scale=1.0).released(3)),
                draws=2,
                seed=1,
            ),
            ("release", "s"),
            "sample: 'release['s']' has integer noise",
        ),
    ],
    ids=["prior", "statistic", "record", "total", "release"],
)
def test_a_place_is_data_as_well_as_words(call, path, words):
    error = refused(call)
    assert error.path == path
    assert str(error).startswith(words)


@pytest.mark.parametrize(
    ("entry", "path", "argument"),
    [
        ({"value": 1.0}, ("statistics", "s"), "mechanism"),
        ({"value": [], "mechanism": "Laplace", "scale": 1.0}, ("statistics", "s", "value"), "value"),
        ({"value": 1.0, "mechanism": "Laplace", "scale": -1.0}, ("statistics", "s"), "scale"),
        (
            {"value": [1.0], "mechanism": "Product", "parts": [{"mechanism": "Laplac"}]},
            ("statistics", "s", "parts", 0),
            "mechanism",
        ),
        (
            {"value": 1.0, "mechanism": "Laplace", "scale": 1.0, "guarantee": {"epsilon": -1.0}},
            ("statistics", "s", "guarantee"),
            "epsilon",
        ),
    ],
    ids=["entry", "value", "mechanism", "list", "guarantee"],
)
def test_a_place_in_a_release_file(entry, path, argument):
    content = {"format": "noisewise-release", "version": 1, "statistics": {"s": entry}}
    error = refused(lambda: nw.Release.from_dict(content, "file.json"))
    assert (error.path, error.argument) == (path, argument)
    assert str(error).startswith("file.json: statistics.s")
    assert str(error) == f"{error.who}: {error.cause}"


@pytest.mark.parametrize(
    "send", [lambda error: pickle.loads(pickle.dumps(error)), portable], ids=["pickle", "portable"]
)
@pytest.mark.parametrize(
    "error",
    [
        refusal(
            "fit",
            Place.of("statistics", "s"),
            "must have a density",
            lambda: 3,
            "Use nw.sample.",
            instead=("nw.sample",),
        ),
        refusal("Laplace", "scale", "must be positive", -1, "Give one.").within(Place("file: s", ("statistics", "s"))),
        FileError("study.toml", "first\nsecond", 8, "is wrong."),
        InputError("plain"),
    ],
    ids=["refusal", "within", "file", "plain"],
)
def test_input_errors_travel_whole(error, send):
    arrived = send(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert [getattr(arrived, name) for name in PARTS] == [getattr(error, name) for name in PARTS]


def test_a_reason_is_without_those_who_met_the_refusal_on_its_way():
    error = InputError("a draw is NaN.", who="Model").within("disjoint").within("release.json").advising("Mend it.")
    assert str(error) == "release.json: disjoint: Model: a draw is NaN. Mend it."
    assert error.reason == "a draw is NaN. Mend it."


def test_inference_errors_travel_whole():
    error = nw.InferenceError("it failed", {"draws": 3}, headline="failed")
    arrived = pickle.loads(pickle.dumps(error))
    assert (str(arrived), arrived.result, arrived.headline) == ("it failed", {"draws": 3}, "failed")
    wrong = pickle.loads(pickle.dumps(WrongMechanism.exceeding(nw.Laplace(scale=1.0), "s", 0.5)))
    assert isinstance(wrong, WrongMechanism)
    assert "0.5" in str(wrong)
    assert "0.5" not in wrong.headline


def test_a_value_is_kept_as_shown_and_cut():
    error = refusal("who", "argument", "rule", list(range(10_000)), "Advice.")
    assert isinstance(error.value, str)
    assert len(error.value) <= 200


def test_more_advice_goes_last():
    error = refusal("who", "argument", "rule", 1, "Do this.", instead=("nw.sample",))
    assert str(error.advising("Or that.")) == f"{error} Or that."
    assert error.advising("Or that.").advice == "Do this. Or that."
    assert error.advising() is error


def test_a_warning_has_its_cause():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nw.Model({"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}, {"s": lambda a: dist.Normal(a, 1.0)})
    (warning,) = [each.message for each in caught if isinstance(each.message, NoisewiseWarning)]
    assert (warning.who, str(warning)) == ("Model", f"Model: {warning.cause}")
    assert warning.cause.startswith("parameter 'b' is used by no statistic")


def test_a_warning_about_a_place_of_the_model_names_it_to_people_who_write_no_python():
    assert mistake_in_words(NoisewiseWarning("is odd.", "Model['theta']")) == "Model['theta']: is odd."
    assert mistake_in_words(NoisewiseWarning("memory is short.", "sample")) == "memory is short."
