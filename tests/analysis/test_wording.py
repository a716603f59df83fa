"""[answers] and [words]: what is asked for, computed from the draws, and what people call it."""

import numpy as np
import pytest

import noisewise as nw
from noisewise.analysis import Analysis, FileError, starter
from noisewise.analysis.analysis import STARTERS
from noisewise.results.naming import Naming

MODEL = """[parameters]
mu = "Normal([0, 1], 1)"
log_odds = "Normal(0, 1)"

[statistics]
means = "Normal(mu, 1)"
yes = "Binomial(40, logits=log_odds)"

[release.means]
value = [0.5, 1.5]
mechanism = "Laplace"
scale = 1.0

[release.yes]
value = 22
mechanism = "DiscreteLaplace"
scale = 2.0
"""
ANSWERS = """[answers]
difference = "mu[1] - mu[0]"
share = "expit(log_odds)"
ahead = "mu[1] > mu[0]"
both = "difference > 0.5 and not share > 0.6"
shares = "softmax(mu)"
count = "yes"

"""


@pytest.mark.quick
def test_answers_are_computed_from_the_draws():
    analysis = Analysis.from_text(ANSWERS + MODEL)
    found = nw.sample(analysis.model, analysis.release, nw.Rejection(), draws=400, seed=1)
    mu, share = found["mu"], 1.0 / (1.0 + np.exp(-found["log_odds"]))
    assert found.derived == ("difference", "share", "ahead", "both", "shares", "count")
    np.testing.assert_allclose(found["difference"], mu[:, 1] - mu[:, 0], rtol=1e-12)
    np.testing.assert_allclose(found["share"], share, rtol=1e-12)
    np.testing.assert_allclose(found["shares"].sum(axis=1), 1.0)
    assert np.array_equal(found["ahead"], mu[:, 1] > mu[:, 0])
    assert np.array_equal(found["both"], (mu[:, 1] - mu[:, 0] > 0.5) & ~(share > 0.6))
    assert found["count"].dtype.kind == "i"
    summary = found.summary()
    assert summary.loc["ahead", "mean"] == np.mean(mu[:, 1] > mu[:, 0])
    error = np.sqrt(found["ahead"].var(ddof=1) / 400)
    assert summary.loc["ahead", "mcse"] == pytest.approx(error, rel=1e-6)
    plain = nw.sample(Analysis.from_text(MODEL).model, analysis.release, nw.Rejection(), draws=400, seed=1)
    assert np.array_equal(plain["mu"], mu), "asking changes no draw"


def test_an_analysis_with_answers_is_written_and_read_again():
    words = '[words]\nshare = "The share"\nmu = { label = "Mean", unit = "kg", names = ["North", "South"] }\n\n'
    analysis = Analysis.from_text(ANSWERS + words + MODEL)
    again = Analysis.from_text(analysis.to_text())
    assert again.content == {**analysis.content, "inference": again.content["inference"]}
    assert list(again.model.derived) == list(analysis.model.derived)
    assert analysis.model.axes.coords["mu_entry"] == ("North", "South")
    naming = Naming.of(analysis.content)
    assert naming.called("mu[South]") == "Mean, South"
    assert naming.listed("share") == "The share (share)"
    assert (naming.called("yes"), naming.unit("mu[South]"), naming.unit("share")) == ("yes", " kg", "")


REFUSED = {
    "unknown": (ANSWERS.replace("log_odds)", "log_od)"), "'log_od' is not a name", 3),
    "later": ('[answers]\na = "b + 1"\nb = "log_odds"\n', "'b' is not a name that can be used here", 2),
    "constant": ('[answers]\na = "3"\n', "must use a parameter or a statistic", 2),
    "number": ("[answers]\na = 3\n", "must be an expression in quotation marks", 2),
    "used twice": ('[answers]\nmu = "log_odds"\n', "'mu' is used twice", 2),
    "shape": ('[answers]\na = "mu[2]"\n', "the subscript is outside", 2),
    "if": ('[answers]\na = "1 if mu[0] > 0 else 2"\n', "'if' is not allowed", 2),
    "words of nothing": ('[words]\nmo = "Mean"\n', "'mo' is not a parameter, a statistic or an answer", 2),
    "label": ("[words]\nmu = { label = 3 }\n", "'label' must be text", 2),
    "key": ('[words]\nmu = { lable = "a" }\n', "Did you mean 'label'", 2),
    "names": ("[words]\nmu = { names = [1, 2] }\n", "must be a list of words", 2),
    "too few names": ('[words]\nmu = { names = ["North"] }\n', "must have one label for each entry", None),
}


@pytest.mark.parametrize(("text", "cause", "line"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_refused_where_they_stand(text, cause, line):
    with pytest.raises(FileError) as caught:
        Analysis.from_text(text + MODEL)
    assert cause in caught.value.cause
    assert line is None or f"line {line}," in str(caught.value)


@pytest.mark.parametrize("name", STARTERS)
def test_every_starter_asks_its_question_and_names_what_it_asks_for(name):
    analysis = Analysis.from_text(starter(name))
    assert analysis.model.derived
    assert set(analysis.model.derived) <= set(Naming.of(analysis.content).labels)
