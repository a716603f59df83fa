"""The code that everyday functions write is looked through before it runs: names and labels of a release are data."""

import ast

import pytest

import noisewise as nw
from noisewise.everyday.written import Written, harmless, quoted

HOSTILE = [
    '__import__("os")',
    'print("x")',
    "().__class__",
    'np.load("x")',
    'nw.Release.load("x")',
    "jnp.array.__globals__",
    "dist.Normal.__init__",
    "[x for x in (1,)]",
    "lambda: exit()",
    'f"{1}"',
    "1 if 1 else 2",
    "(x := 1)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_law_never_runs(text):
    with pytest.raises(nw.InputError, match="must only call laws"):
        Written({"a": text}, {"b": "lambda a: dist.Normal(a, 1.0)"}).model()


@pytest.mark.parametrize("text", ["import os", "from os import system", "@print\ndef f(): return 1", "class A: pass"])
def test_statements_that_are_none_of_a_model_never_run(text):
    with pytest.raises(nw.InputError, match="must only call laws"):
        harmless(text)


@pytest.mark.parametrize("label", ['"]}); exit(); ({"', "\\", "a'b\"c", "\\N{BULLET}", "{x}", "é"])
def test_a_label_is_text_whatever_it_says(label):
    assert ast.literal_eval(quoted([label])) == [label]
    law = "dist.Normal(0.0, 1.0).expand([2])"
    written = Written(
        {"a": law}, {"b": "lambda a: dist.Normal(a, 1.0)"}, dims={"a": ("g",)}, coords={"g": [label, "b"]}
    )
    assert list(written.model().axes.coords["g"]) == [label, "b"]


@pytest.mark.parametrize("name", ["a b", "x = 1", "a.b", "lambda", "a)"])
def test_a_name_is_an_identifier(name):
    with pytest.raises(nw.InputError, match="name"):
        nw.Release({name: nw.Laplace(scale=1.0).released(1.0)})
