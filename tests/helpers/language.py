"""What of Python must not reach people who only use files, commands and the page."""

import re

PYTHON = re.compile(
    r"\b(?:nw|dist|jnp|np|jax|numpyro|numpy|posterior|pandas)\.[\w.]*"
    r"|\bnoisewise\.[a-z]\w+"
    r"|\b(?:NumPy|JAX|NumPyro|Python|Traceback|lambda|None|True|False|dicts?|tuples?|float\d+|int\d+)\b"
    r"|\b(?:an? |noisewise )(?:Analysis|DesignFile|Release|Released|Posterior|Model|Problem|Total|Simulator)\b"
    r"|\b(?:[A-Z]\w+\.[a-z]\w+)"  # Laplace.released, Release.load
    r"|\b(?!where\b)[A-Za-z_]\w*\(\)"  # a call
    r"|\b[a-z_]+=[\w\"'\[]"  # a keyword argument
    r"|\bshape \(|\(\d+,\)"
    r"|^noisewise: (?!note)[a-z_]+: "  # a function that refuses
    r"|'(?:path|file|data|folder|out|where)' (?:must|is)"
    r"|on_failure",
    re.MULTILINE,
)


def python_in(text):
    """The words of Python in a text, with what stands around them."""
    return [text[max(0, match.start() - 60) : match.end() + 40] for match in PYTHON.finditer(text)]
