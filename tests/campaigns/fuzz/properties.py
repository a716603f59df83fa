"""The same claim as a property for Hypothesis, which makes a counterexample small before it shows it."""

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies
from hypothesis import seed as seeded

from fuzz.kinds_of_files import malformed, outcome

FIELDS = ["value", "mechanism", "scale", "epsilon", "sensitivity", "guarantee", "base", "parts", "low", "high", "x"]
FIELDS += ["axes", "name", "labels", "about", "extra", "bounds"]
PLAIN = strategies.one_of(
    strategies.none(),
    strategies.booleans(),
    strategies.integers(),
    strategies.floats(),
    strategies.sampled_from(["Laplace", "Gaussian", "Product", "DiscreteLaplace", "Clamped", "suppressed", ""]),
    strategies.text(max_size=5),
)
ENTRIES = strategies.recursive(
    PLAIN,
    lambda inner: strategies.one_of(
        strategies.lists(inner, max_size=4), strategies.dictionaries(strategies.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=12,
)


def check(kind, examples, seed):
    """No malformed file of this kind gives anything but success or the library's own error."""
    common = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"

        @seeded(seed)
        @common
        @given(strategies.randoms(use_true_random=False, note_method_calls=False))
        def changed(rng):
            path.write_bytes(malformed(kind, rng))
            assert outcome(kind, path) in ("read", "refused")

        @seeded(seed)
        @common
        @given(strategies.dictionaries(strategies.sampled_from(["a", "b"]), ENTRIES, max_size=2))
        def made_up(statistics):
            content = {"format": "noisewise-release", "version": 2, "statistics": statistics}
            path.write_text(json.dumps(content))
            assert outcome(kind, path) in ("read", "refused")

        changed()
        if kind == "release":
            made_up()
