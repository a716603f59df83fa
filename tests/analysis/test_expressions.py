"""The grammar of expressions: values, whole numbers, laws, limits; and that nothing is ever run as code."""

import inspect
import json
import math
import time
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

from noisewise.analysis.expressions import ExpressionError, parse_law, parse_number
from noisewise.analysis.vocabulary import FUNCTIONS, LAWS, parameters_of
from noisewise.numerics import double

VALUES = {"x": 1.75, "k": 3, "v": np.array([0.5, -1.0, 2.0]), "m": np.array([[1.0, 2.0], [3.0, 4.0]])}


def value(text):
    expression = parse_number(text, VALUES)
    with double():
        given = {name: jnp.asarray(VALUES[name]) for name in expression.names}
        return np.asarray(expression.function()(**given))


def values(texts):
    """Of many expressions, in one program."""
    expressions = [parse_number(text, VALUES) for text in texts]
    with double():
        given = {name: jnp.asarray(one) for name, one in VALUES.items()}
        return jax.jit(lambda given: [one.function()(**{n: given[n] for n in one.names}) for one in expressions])(given)


ARITHMETIC = {
    "1 + 2 * 3": 7,
    "-x**2": -(1.75**2),
    "2**-1": 0.5,
    "(1 + x) / 2": 1.375,
    "k / 2": 1.5,
    "k**2": 9,
    "k**-1": 1 / 3,
    "x**0.5": 1.75**0.5,
    "+x - -x": 3.5,
    "1_000 + .5": 1000.5,
    "2 * pi": 2 * math.pi,
    "v[0] + v[-1]": 2.5,
    "m[1, 0]": 3,
    "m[1][0]": 3,
    "v * [1, 2, 3]": [0.5, -2, 6],
    "[x, k]": [1.75, 3],
    "[[1, 2], [3, 4]] - m": [[0, 0], [0, 0]],
    "  \n x\t+\n 1 ": 2.75,
    "where(x > 1, 1, 0)": 1,
    "where(1 < x < 1.5 or k == 3, v, 0)": [0.5, -1, 2],
    "where(not (x >= 1) and k != 2, 1, 0)": 0,
    "0.1 + 0.2": 0.1 + 0.2,
    "1/3": 1 / 3,
}
BY_FUNCTION = {
    "abs": ("abs(v)", [0.5, 1, 2]),
    "ceil": ("ceil(x)", 2),
    "clip": ("clip(v, 0, 1)", [0.5, 0, 1]),
    "cos": ("cos(x)", np.cos(1.75)),
    "cumsum": ("cumsum(v)", [0.5, -0.5, 1.5]),
    "dot": ("dot(v, v)", 5.25),
    "exp": ("exp(x)", np.exp(1.75)),
    "expit": ("expit(x)", special.expit(1.75)),
    "expm1": ("expm1(1e-9 * x)", np.expm1(1.75e-9)),
    "floor": ("floor(x)", 1),
    "join": ("join(x, v, 3)", [1.75, 0.5, -1, 2, 3]),
    "log": ("log(x)", np.log(1.75)),
    "log1p": ("log1p(x)", np.log1p(1.75)),
    "log_gamma": ("log_gamma(x)", special.gammaln(1.75)),
    "logit": ("logit(x / 2)", special.logit(0.875)),
    "max": ("max(v)", 2),
    "maximum": ("maximum(v, 0)", [0.5, 0, 2]),
    "mean": ("mean(v)", 0.5),
    "min": ("min(v)", -1),
    "minimum": ("minimum(v, x)", [0.5, -1, 1.75]),
    "normal_cdf": ("normal_cdf(x)", special.ndtr(1.75)),
    "prod": ("prod(v)", -1),
    "round": ("round(x)", 2),
    "sign": ("sign(v)", [1, -1, 1]),
    "sin": ("sin(x)", np.sin(1.75)),
    "softmax": ("softmax(v)", special.softmax([0.5, -1, 2])),
    "sqrt": ("sqrt(x)", np.sqrt(1.75)),
    "square": ("square(v)", [0.25, 1, 4]),
    "stack": ("stack(x, k)", [1.75, 3]),
    "sum": ("sum(m)", 10),
    "tanh": ("tanh(x)", np.tanh(1.75)),
    "where": ("where(v > 0, v, 0)", [0.5, 0, 2]),
}


@pytest.mark.parametrize("text", ARITHMETIC)
def test_arithmetic(text):
    np.testing.assert_allclose(value(text), ARITHMETIC[text], rtol=1e-14)


def test_every_function_computes_what_it_says_for_names_and_for_numbers():
    assert set(BY_FUNCTION) == set(FUNCTIONS)
    by_numbers, by_names = {}, {}
    for name, function in FUNCTIONS.items():
        if function.on_numbers is not None:  # computed beforehand, in NumPy: the same as in JAX
            numbers = ["0.3", "0.2", "0.7"][: function.least]
            by_numbers[name] = f"{name}({', '.join(numbers)})"
            by_names[name] = f"{name}({', '.join(f'x - {1.75 - float(number)}' for number in numbers)})"
    texts = [text for text, _ in BY_FUNCTION.values()] + list(by_names.values())
    found = dict(zip(texts, values(texts), strict=True))
    for text, expected in BY_FUNCTION.values():
        np.testing.assert_allclose(found[text], expected, rtol=1e-12, err_msg=text)
    for name, text in by_names.items():
        np.testing.assert_allclose(value(by_numbers[name]), found[text], rtol=1e-9)


@pytest.mark.parametrize(
    "text", ["k + 1", "where(x > 1, 1, 0)", "clip(k, 0, 2)", "k**2", "-k", "[1, 2]", "square(k)", "2**10"]
)
def test_whole_numbers_stay_whole(text):
    assert value(text).dtype.kind == "i"


@pytest.mark.parametrize("text", ["k / 1", "k * 1.0", "sqrt(4)", "2**0.5", "k**-1", "2**60 * 0.5"])
def test_other_numbers_do_not(text):
    assert value(text).dtype == np.float64


def test_a_function_shows_the_names_it_depends_on():
    function = parse_law("Normal(x + k, scale=sqrt(k))", VALUES).function()
    assert list(inspect.signature(function).parameters) == ["x", "k"]
    assert parse_number("2 * pi", VALUES).names == ()
    assert parse_number("pi", ["pi"]).names == ("pi",)


EXAMPLES = {
    "Bernoulli": "0.3",
    "Beta": "2, 3",
    "BetaBinomial": "2, 3, 10",
    "BetaProportion": "0.3, 4",
    "Binomial": "10, logits=0.3",
    "Categorical": "[0.2, 0.8]",
    "Chi2": "3",
    "Delta": "4",
    "Dirichlet": "[1, 2, 3]",
    "DirichletMultinomial": "[1, 2, 3], 7",
    "DiscreteUniform": "2, 9",
    "Exponential": "2",
    "Gamma": "25, 1",
    "GammaPoisson": "3, 2",
    "Geometric": "0.4",
    "HalfCauchy": "2",
    "HalfNormal": "2",
    "InverseGamma": "3, 2",
    "Kumaraswamy": "2, 3",
    "LogUniform": "1, 10",
    "Multinomial": "10, [0.2, 0.8]",
    "MultivariateNormal": "[0, 1], [[2, 1], [1, 2]]",
    "NegativeBinomial2": "3, 2",
    "NegativeBinomialProbs": "3, 0.4",
    "Pareto": "1, 3",
    "Poisson": "4",
    "StudentT": "4, 0, 1",
    "TruncatedNormal": "0, 1, low=-1",
    "VonMises": "0, 2",
    "Weibull": "1, 2",
    "ZeroInflatedPoisson": "0.2, 3",
}


AT = {
    "Beta": 0.3,
    "BetaBinomial": 4,
    "BetaProportion": 0.3,
    "Dirichlet": [0.2, 0.5, 0.3],
    "DirichletMultinomial": [2, 4, 1],
    "Gamma": 23.0,
    "Multinomial": [3, 7],
    "MultivariateNormal": [0.4, -0.3],
    "VonMises": 0.7,
    "Delta": 4,
    "Kumaraswamy": 0.7,
    "TruncatedNormal": -0.6,
}
WHOLE = dict.fromkeys(["Bernoulli", "Categorical"], 1)
WHOLE |= dict.fromkeys(["Binomial", "DiscreteUniform", "GammaPoisson", "Geometric", "NegativeBinomial2"], 3)
WHOLE |= dict.fromkeys(["NegativeBinomialProbs", "Poisson", "ZeroInflatedPoisson"], 3)


def both_laws(name):
    """The law as a file has it, and as Python has it."""
    arguments = EXAMPLES.get(name, "0, 2")
    positional, keywords = [], {}
    for part in _split(arguments):
        key, sign, inner = part.rpartition("=")
        given = jnp.asarray(np.array(json.loads(inner)))
        if sign:
            keywords[key] = given
        else:
            positional.append(given)
    return parse_law(f"{name}({arguments})", []).function()(), getattr(dist, name)(*positional, **keywords)


@cache
def densities():
    """Of all laws at once, which is one program."""
    at = {name: jnp.asarray(np.array(AT.get(name, WHOLE.get(name, 1.2)))) for name in LAWS}
    return jax.jit(lambda at: {name: [law.log_prob(at[name]) for law in both_laws(name)] for name in LAWS})(at)


@pytest.mark.parametrize("name", LAWS)
def test_every_law_is_the_law_of_numpyro(name):
    """The same density as the law written in Python, at a value of its own."""
    with double():
        ours, theirs = densities()[name]
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        shapes = [jax.eval_shape(lambda place=place: jnp.zeros(both_laws(name)[place].shape())) for place in (0, 1)]
        assert shapes[0].shape == shapes[1].shape


def _split(arguments):
    """Split at commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for character in arguments:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def test_size_repeats_a_law():
    with double():
        assert parse_law("Normal(0, 1, size=4)", []).function()().shape() == (4,)
        assert parse_law("Dirichlet([1, 1], size=3)", []).function()().shape() == (3, 2)


def test_laws_hide_what_is_internal():
    for name in LAWS:
        assert not {"validate_args", "is_sparse", "event_dim"} & set(parameters_of(name))


@pytest.mark.parametrize(
    "text",
    [
        "10**10**10",
        "9**9**9**9",
        "-" * 1900 + "1",
        "(" * 900 + "1" + ")" * 900,
        "[" * 900 + "1" + "]" * 900,
        "1" + " + 1" * 450,
        "9" * 1900,
        "x" * 2001,
        "\x00",
        "x\ud800",
        "ₓ" * 30,
        "2**(2**(2**(2**(2**2))))",
    ],
)
def test_hostile_expressions_end_in_an_error_at_once(text):
    start = time.monotonic()
    with pytest.raises(ExpressionError):
        parse_number(text, ["x"])
    assert time.monotonic() - start < 2.0


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "eval('1')",
        "exec('1')",
        "open('/etc/passwd')",
        "getattr(x, 'real')",
        "(lambda: 1)()",
        "[y for y in [1]]",
        "x.__class__",
        "globals()",
        "f'{x}'",
        "print(1)",
        "breakpoint()",
        "x if x else x",
        "await x",
        "(yield)",
        "x := 1",
        "import os",
        "x; x",
    ],
)
def test_code_is_not_an_expression(text, monkeypatch):
    called = []
    for name in ("eval", "exec", "open", "getattr", "print", "breakpoint"):
        monkeypatch.setattr(f"noisewise.analysis.expressions.{name}", lambda *a, **k: called.append(1), raising=False)
    with pytest.raises(ExpressionError):
        parse_number(text, ["x"])
    assert not called


def test_positions_count_characters_not_bytes():
    with pytest.raises(ExpressionError) as caught:
        parse_number("ä + ö + nix", ["ä", "ö"])
    assert (caught.value.start, caught.value.end) == (8, 11)


def test_every_word_of_the_grammar_is_documented():
    page = (Path(__file__).parents[2] / "docs/analysis-file.md").read_text()
    for name in [*FUNCTIONS, *LAWS]:
        assert f"`{name}" in page, name
