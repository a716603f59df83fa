"""Compiled programs: what XLA is asked to do for those of many small steps."""

import jax
import numpy as np
import pytest

from noisewise.numerics import Compiled, compiled, double

X = np.linspace(0.0, 1.0, 5)


@pytest.fixture
def asked(monkeypatch):
    """XLA's options for every program that is compiled."""
    options, compile_it = [], jax.stages.Lowered.compile

    def compile(self, compiler_options=None):
        options.append(compiler_options)
        return compile_it(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
    return options


def test_programs_of_many_small_steps_are_compiled_plainly(asked):
    with double():
        for steps in (False, True):
            np.testing.assert_allclose(Compiled(lambda: lambda x: x + 1.0, steps=steps)(X), X + 1.0)
    assert asked == [None, compiled.PLAINLY]


def test_an_option_that_xla_has_not_is_left_out(asked, monkeypatch):
    monkeypatch.setattr(compiled, "PLAINLY", {"xla_no_such_option": True})
    with double():
        np.testing.assert_allclose(Compiled(lambda: lambda x: x + 2.0, steps=True)(X), X + 2.0)
    assert asked == [{"xla_no_such_option": True}, None]
