"""A name has one meaning in the whole package: functions of modules, as `test_contributing.py` has it of classes."""

import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "noisewise"

VERBS = ("calibrate", "compare", "design", "fit", "release", "serve")
"""Commands of the command line, each called like the function that it runs."""
ONE_MEANING = {
    "applies": "whether what the module does can be done here",
    "bars": "of intervals, in a picture",
    "describe": "what a file holds, in words: a release's, a checkpoint's",
    "draw": "random values of a law",
    "heavy_tails": "the same where draws stay on an accelerator",
    "log_gamma": "the logarithm of the gamma function: one precise, one fast",
    "log_prob": "a log density",
    "log_sum": "log sum exp, with and without a gradient",
    "main": "where a process begins",
    "mean_and_sd": "the same where draws stay on an accelerator",
    "percent": "a share in words",
    "plain": "as data for JSON",
    "prior_draws": "draws of a model's prior: so many, or as many as a picture needs",
    "quantiles": "the same where draws stay on an accelerator",
    "rule": "nodes and weights of a quadrature",
    "starter": "an analysis file to begin with",
    "unfit": "why something does not apply, or None",
    "write": "what a room makes, into files",
}
"""Names of functions in several rooms, and the one idea that each is everywhere."""


def rooms_of_functions(source):
    """Rooms by the name of each public function of a module."""
    rooms = {}
    for path in source.rglob("*.py"):
        room = path.relative_to(source).parts[0]
        for name in re.findall(r"^def ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            rooms.setdefault(name, set()).add(room)
    return rooms


def test_a_function_of_one_name_has_one_meaning():
    several = {name for name, rooms in rooms_of_functions(SOURCE).items() if len(rooms) > 1}
    assert several == {*VERBS, *ONE_MEANING}, "one name, several rooms: rename, or say why"


def test_a_verb_of_the_command_line_is_in_one_other_room():
    rooms = rooms_of_functions(SOURCE)
    assert all("cli" in rooms[verb] and len(rooms[verb]) == 2 for verb in VERBS)


def test_one_name_in_two_rooms_would_be_seen(tmp_path):
    for room, text in {
        "one": "def same(): ...\ndef _own(): ...\n",
        "other": "def same(): ...\ndef _own(): ...\n",
    }.items():
        (tmp_path / room).mkdir()
        (tmp_path / room / "module.py").write_text(text)
    assert rooms_of_functions(tmp_path) == {"same": {"one", "other"}}
