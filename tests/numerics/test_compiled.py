"""Compiled programs: what XLA is asked to do, and in which order."""

import threading

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


def test_programs_are_compiled_as_they_are_meant_to_run(asked):
    with double():
        for options in ({}, compiled.PLAINLY, compiled.AT_ONCE):
            np.testing.assert_allclose(Compiled(lambda: lambda x: x + 1.0, options=options)(X), X + 1.0)
    assert asked == [None, compiled.PLAINLY, compiled.AT_ONCE]


def test_an_option_that_xla_has_not_is_left_out(asked):
    unknown = {"xla_no_such_option": True}
    with double():
        np.testing.assert_allclose(Compiled(lambda: lambda x: x + 2.0, options=unknown)(X), X + 2.0)
    assert asked == [unknown, None]


def test_a_look_is_compiled_at_once_and_kept_apart(asked):
    program = Compiled(lambda: lambda x: x + 3.0, options=compiled.PLAINLY)
    with double():
        for _ in range(2):
            with compiled.looking():
                np.testing.assert_allclose(program(X), X + 3.0)
            np.testing.assert_allclose(program(X), X + 3.0)
    assert asked == [compiled.AT_ONCE, compiled.PLAINLY]


def test_a_program_whose_shapes_were_asked_for_is_traced_once(asked):
    traces = []
    program = Compiled(lambda: lambda x: traces.append(1) or {"y": x[1:] * 2.0})
    with double():
        for _ in range(2):
            assert program.shapes(X) == {"y": jax.ShapeDtypeStruct((4,), np.float64)}
            np.testing.assert_allclose(program(X)["y"], X[1:] * 2.0)
    assert len(traces) == len(asked) == 1


def test_programs_are_traced_one_after_the_other(asked):
    """The second begins when only XLA's part of the first is left; one that fails holds up none."""
    order, begun = [], threading.Event()

    def traced(name):
        def build():
            def function(x):
                begun.wait(10)
                order.append(name)
                if name == "wrong":
                    raise ValueError(name)
                return x + len(name)

            return function

        return Compiled(build)

    programs = [traced(name) for name in ("first", "wrong", "last")]
    handed_over = None
    for program in programs:
        handed_over = program.prepare(X, after=handed_over)
    begun.set()
    assert handed_over.wait(20)
    assert order == ["first", "wrong", "last"]
    with double():
        np.testing.assert_allclose(programs[2](X), X + 4.0)
        with pytest.raises(ValueError, match="wrong"):
            programs[1](X)
    assert order == ["first", "wrong", "last", "wrong"]
