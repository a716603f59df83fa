"""What changes outside the page is seen, and a window that closes at any moment leaves nothing behind."""

import asyncio

import pytest
from shiny import reactive
from shiny.express._stub_session import ExpressStubSession
from shiny.session import session_context

from noisewise.page import watching


class Window(ExpressStubSession):
    """A session that can end."""

    def __init__(self):
        super().__init__("window")
        self.at_end = []

    def is_stub_session(self):
        return False

    def on_ended(self, fn):
        self.at_end.append(fn)
        return lambda: None


async def seen_values(values, window):
    """What a watch of `values` computed, at first and after each was put in place."""
    current, computed = [values[0]], []
    with session_context(window):
        value = watching.watched(lambda: current[0])(lambda: current[0])
        reactive.effect(lambda: computed.append(value()))
    async with reactive.lock():
        await reactive.flush()
    for one in values[1:]:
        current[0] = one
        await asyncio.sleep(3 * watching.EVERY)
        async with asyncio.timeout(60):
            while computed[-1] != one:
                await asyncio.sleep(watching.EVERY)
    return computed


def test_a_change_is_computed_once_and_no_change_not_at_all(monkeypatch):
    monkeypatch.setattr(watching, "EVERY", 0.02)
    assert asyncio.run(seen_values([[1], [1], [2], [2], [3]], Window())) == [[1], [2], [3]]


async def closed_while_it_waits(decorator):
    """A window is closed while something else has the page's turn and the timer waits for it."""
    window = Window()
    with session_context(window):
        decorator(lambda: None)
    async with reactive.lock():
        await reactive.flush()
    async with reactive.lock():
        await asyncio.sleep(3 * watching.EVERY)
        for end in window.at_end:
            end()
        await asyncio.sleep(watching.EVERY)
    await asyncio.sleep(3 * watching.EVERY)
    return len(watching._UNDER_WAY)


@pytest.mark.parametrize("is_ours", [True, False], ids=["watched", "negative control: reactive.poll"])
def test_a_window_that_closes_while_its_timer_waits_prints_nothing(monkeypatch, capfd, is_ours):
    monkeypatch.setattr(watching, "EVERY", 0.05)

    def decorator(compute):
        look = iter(range(10**6)).__next__
        return watching.watched(look)(compute) if is_ours else reactive.poll(look, watching.EVERY)(compute)

    assert asyncio.run(closed_while_it_waits(decorator)) == 0
    assert ("Traceback" in capfd.readouterr().err) != is_ours
