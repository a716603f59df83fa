"""Messages for programs in the words of analysis files and commands, for people who write no Python.

The library refuses and advises in its own words: `nw.MCEM()`, `None`, a dict. In a file the same are
`method = "MCEM" in [likelihood]`, a key that is left out, a table. All that such people read goes through here.
Only words are changed. Decisions about an error are made by its fields, never by the text of its message.
"""

import re

from noisewise.likelihood import EM, MCEM
from noisewise.mechanisms import CATALOGUE
from noisewise.samplers.choosing.choice import public_samplers

COMMANDS = {
    "sample": "noisewise fit",
    "fit": "noisewise mle",
    "forecast": "noisewise check",
    "compare": "noisewise compare",
    "calibrate": "noisewise calibrate",
    "design": "noisewise design",
    "allocate": "split in [design]",
}
"""Verbs of the library, and the command or the key of a file that does the same."""
_ESTIMATORS = (EM.__name__, MCEM.__name__)
_CALL = re.compile(r"\bnw\.([A-Z]\w*)\(([^()]*)\)")
_METHODS = re.compile(rf"\b({'|'.join([*_ESTIMATORS, *public_samplers()])})\(([^()]*)\)")
_VERB = re.compile(rf"\bnw\.({'|'.join(COMMANDS)})\b(?:\([^()]*\))?")
_SETTING = re.compile(r"(?<![\w'\".])([a-z][a-z_]*)=(?=[-\d\"'])")
_SHAPE = re.compile(r"\b(the )?shape \(([\d, ]*)\)")

_WORDS = (
    (r",? (?:and|or) use nw\.(?:Threads|Processes)\(.*?\)[^.]*(?=\.)", ""),  # a file names no engine
    (r" ?Use nw\.Threads\(\)\.", ""),
    (r"\bdist\.(?=[A-Z])", ""),
    (r"\bExact\(\)", 'mechanism = "Exact"'),
    (r"(?<=; got )True\b", "true"),
    (r"(?<=; got )False\b", "false"),
    (r"(?<=; got )None\b", "nothing"),
    (r"\bTrue or False\b|\bTrue, False or None\b", "true or false"),
    (r"; or None for no limit", ""),
    (r"\bGive None for the prior, 'adapted', or .*$", "Leave it out for the prior, or give 'adapted'."),
    (r"\bNone, 'adapted' or a dict of laws", "'adapted', or left out"),
    (r"\bPass back posterior\.diagnostics\['schedule'\], or None\.", "Leave it out."),
    (r"\bOr None,? (?=for|to)", "Leave it out "),
    (r"\bor None(?= to| for|\.)", "or leave it out"),
    (r"\bNone (?=means no)", "To leave it out "),
    (r"\bNone chooses\b", "left out, it is chosen"),
    (r"\bNone decides\b", "Left out, it is decided"),
    (r"10\*\*6, not 1e6|10_000, not 1e4", "whole numbers without a point or an e, as 10000"),
    (r"\ba (?:non-empty )?dict\b", "a table"),
    (r"\bdicts\b", "tables"),
    (r"\ban array of\b", "a list of"),
    (r"\bor array\b", "or list"),
    (r"' of shape \(\) and type float\d+", "', a decimal number"),
    (r"a shape that '(\w+)' of shape \S+(?: \d+\))* broadcasts to", r"as many entries as '\1'"),
    (r"name it in the function that needs it", "name it in the law that needs it"),
    (r"target\['(?:truth'\]\[')?(\w+)'\]", r"\1"),
    (r'\{"width": "theta", "at_most": 4\.0\}', '{ width = "theta", at_most = 4.0 }'),
    (r'"truth": \{"(\w+)": \.\.\.\}', r"truth = { \1 = ... }"),
    (r"\(0\.01, 10\.0\)", "[0.01, 10.0]"),
    (r"must be names that can be Python arguments", "must be letters, digits and underscores, and begin with a letter"),
    (r"must be written as Python reads them", "must be written in the plain form of their letters"),
    (r"\ba Total or Simulator\b", "a sum or mean over records"),  # a file has no simulators
    (r"\ba Total\b", "a sum or mean over records"),
    (r"\ba Simulator\b", "a simulation"),
)
"""Patterns of words for programs, and the words for files that replace them."""
_COMPILED = tuple((re.compile(pattern), words) for pattern, words in _WORDS)


def in_file_words(text: str) -> str:
    """A message in the words of the file and of the command line."""
    for pattern, words in _COMPILED:
        text = pattern.sub(words, text)
    text = _CALL.sub(_written, text)
    text = _METHODS.sub(lambda match: _with(match[1], match[2]), text)
    text = _VERB.sub(lambda match: COMMANDS[match[1]], text)
    text = _SHAPE.sub(_size, text)
    return _SETTING.sub(r"\1 = ", text)


def _written(match: re.Match[str]) -> str:
    """`nw.MCEM(e_step="augmented")` as a file asks for it."""
    name, settings = match[1], _settings(match[2])
    if name in CATALOGUE:
        return _with(f'mechanism = "{name}"', match[2])
    if name not in _ESTIMATORS and name not in public_samplers():
        return name
    place = "[likelihood]" if name in _ESTIMATORS else "[inference]"
    asked = f'{{ name = "{name}", {settings} }}' if settings else f'"{name}"'
    return f"method = {asked} in {place}"


def _with(name: str, settings: str) -> str:
    return f"{name} with {_settings(settings)}" if settings else name


def _settings(text: str) -> str:
    """Arguments of a call as a file states them."""
    stated = re.sub(r"(\w+)=", r"\1 = ", text).replace("'", '"')
    return stated.replace("True", "true").replace("False", "false")


def _size(match: re.Match[str]) -> str:
    """A shape as a number of entries."""
    sizes = [size.strip() for size in match[2].split(",") if size.strip()]
    if not sizes:
        return "the single number" if match[1] else "a single number"
    return f"{match[1] or ''}{' x '.join(sizes)} entries"
