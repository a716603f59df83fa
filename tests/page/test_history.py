"""Runs side by side: what differs in their files, and what came out."""

import pytest

from noisewise.analysis import starter

pytest.importorskip("shiny", reason="the page needs noisewise[page]")

from noisewise.page import history
from noisewise.page.runs import Run

ROW = {"name": "theta", "label": "The rate (theta)", "exact": [28.0, 5.0, 20.0, 38.0]}
CHANCE = {"name": "over", "label": "Over 30", "exact": [0.4, 0.5, 0.0, 1.0], "chance": True}


def run_of(number, text, rows, folder):
    place = folder / f"run-{number:04d}"
    place.mkdir()
    (place / "analysis.toml").write_text(text)
    run = Run({}, number=number, folder=place, title=f"title {number}")
    run.state, run.result = "done", {"rows": rows, "verdict": {"title": "Trust it"}, "level": 0.95}
    return run


def test_only_lines_that_differ_are_changes(tmp_path):
    text = starter("count")
    files = [history._file(run_of(at, each, [ROW], tmp_path)) for at, each in enumerate([text, text + "\n# more\n"])]
    assert history.changes(files) == [], "a comment is no change"
    other = text.replace("value = 37.4", "value = 41.5").replace("level = 0.95    # of the intervals", "")
    files.append(history._file(run_of(2, other, [ROW], tmp_path)))
    assert history.changes(files) == [
        ("[release.count] value", ["37.4", "37.4", "41.5"]),
        ("[inference] level", ["0.95", "0.95", history.ABSENT]),
    ]


def test_a_quantity_that_one_run_lacks_is_left_open(tmp_path):
    runs = [run_of(1, "", [ROW], tmp_path), run_of(2, "", [CHANCE, ROW], tmp_path)]
    assert history.quantities_of_runs(runs) == [("The rate (theta)", [ROW, ROW]), ("Over 30", [None, CHANCE])]


def test_side_by_side_is_said_in_words_and_drawn_on_one_scale(tmp_path):
    moved = ROW | {"exact": [38.0, 5.0, 28.0, 48.0]}
    runs = [run_of(1, "", [ROW, CHANCE], tmp_path), run_of(2, "a = 1", [moved, CHANCE], tmp_path)]
    shown = str(history.compared_ui(runs))
    assert "28 (20 to 38)" in shown
    assert "38 (28 to 48)" in shown
    assert "40.0%" in shown
    assert shown.count("<svg") == 2, "a probability has no interval"
    assert '<line x1="4.0" x2="63.1"' in shown  # 4 + 92 * (38 - 20) / (48 - 20)
    assert '<line x1="30.3" x2="96.0"' in shown
    assert history.first_answer(runs[0]) == "The rate (theta): 28 (20 to 38)"


def test_text_of_the_user_is_no_markup_side_by_side(tmp_path):
    row = ROW | {"label": "<b>bold</b>"}
    shown = str(history.compared_ui([run_of(1, 'a = "<i>"', [row], tmp_path), run_of(2, "", [row], tmp_path)]))
    assert "<b>" not in shown
    assert "<i>" not in shown
