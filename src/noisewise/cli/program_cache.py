"""Compiled programs kept between commands, in the user's cache folder: a second analysis of one kind starts sooner.

Nothing depends on them. Where the folder cannot be written, or a file in it cannot be read, programs are compiled.
"""

import hashlib
import os
import platform
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import jax

SETTING = "NOISEWISE_CACHE"
"""The environment variable: a folder, or 0 to keep nothing."""
OFF = ("", "0", "no", "off", "false")
MOST = 2**28
"""Bytes that are kept, at most: files that have not been used for longest are removed first."""
SHORTEST = 0.02
"""Seconds of compilation from which a program is worth a file."""


def keep_programs() -> Path | None:
    """Keep what JAX compiles from now on, and use what was kept; the folder, or None where nothing is kept."""
    folder = _wanted()
    if folder is None or getattr(jax.config, "jax_compilation_cache_dir", None):  # the user's own is left alone
        return None
    own = folder / f"{jax.__version__}-{_processor()}"
    try:
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=own):
            pass
        prune(folder)
    except OSError:
        return None
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache", module="jax")
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST)
    return own


def _wanted() -> Path | None:
    setting = os.environ.get(SETTING)
    if setting is not None:
        return None if setting.strip().lower() in OFF else Path(setting).expanduser()
    try:
        return _caches() / "noisewise" / "programs"
    except RuntimeError:  # there is no home folder
        return None


def _caches() -> Path:
    """The user's cache folder on this platform."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _processor() -> str:
    """A hash of the processor that programs are compiled for: machines of several kinds may share a home folder."""
    about = [platform.system(), platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        about += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]


def prune(folder: Path, most: int = MOST) -> None:
    """Remove the files that have not been used for longest, until the rest fit. Another process may do the same."""
    files = []
    for path in folder.rglob("*-cache"):
        with suppress(OSError):
            about = path.stat()
            files.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left <= most:
            return
        with suppress(OSError):
            path.unlink()
        left -= size
