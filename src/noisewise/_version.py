"""The version of noisewise, and those of what decides a run's numbers."""

import platform
from functools import cache
from importlib import metadata

__version__ = "0.1.0"


def current_versions() -> dict[str, str]:
    """Versions of what decides a run's numbers."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    names = ("numpy", "scipy", "jax", "jaxlib", "numpyro")
    ours = {"python": platform.python_version(), "noisewise": __version__}
    return ours | {name: metadata.version(name) for name in names}
