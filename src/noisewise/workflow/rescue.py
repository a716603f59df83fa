"""Where a folder of results cannot be written, what was computed is saved elsewhere, in plain files."""

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.results import fit_file
from noisewise.results.fit import Fit
from noisewise.results.posterior import Posterior
from noisewise.workflow.folder import new_folder, write_json
from noisewise.workflow.results import Results


def rescued(results: Results, folder: Path) -> str:
    """Save results beside `folder`, or else among temporary files, and return a sentence that says where."""
    for parent in (folder.absolute().parent, Path(tempfile.gettempdir())):
        with contextlib.suppress(Exception):  # whatever went wrong, there is one more place to try
            place = new_folder(parent, f"{folder.absolute().name}-rescued")
            if _saved(results, place):
                return f"What was computed is in {place}."
            shutil.rmtree(place, ignore_errors=True)
    return "What was computed could not be saved either."


def _saved(results: Results, place: Path) -> bool:
    """Save each file by itself, since any may fail; whether the posterior or the fit is among those saved."""
    with contextlib.suppress(Exception):
        (place / "analysis.toml").write_text(results.analysis.to_text(), encoding="utf-8")
    with contextlib.suppress(Exception):
        write_json(place / "summary.json", results.summary())
    if results.posterior is not None:
        if results.naive is not None:
            _save_posterior(results.naive, place / "naive.nc")
        return _save_posterior(results.posterior, place / "posterior.nc")
    assert results.fit is not None
    if results.naive_fit is not None:
        _save_fit(results.naive_fit, place / "naive.json")
    return _save_fit(results.fit, place / "fit.json")


def _save_posterior(posterior: Posterior, path: Path) -> bool:
    """As NetCDF; where that fails, the bare arrays."""
    try:
        posterior.save(path)
    except Exception:
        path.unlink(missing_ok=True)
        arrays: dict[str, Any] = {f"draws.{name}": values for name, values in posterior.draws.items()}
        if posterior.log_weights is not None:
            arrays["log_weights"] = posterior.log_weights
        return _save_arrays(path, arrays)
    return True


def _save_fit(fit: Fit, path: Path) -> bool:
    try:
        write_json(path, fit_file.to_data(fit))
    except Exception:
        path.unlink(missing_ok=True)
        arrays: dict[str, Any] = {f"estimate.{name}": value for name, value in fit.estimate.items()}
        return _save_arrays(path, arrays | {"covariance": fit.covariance})
    return True


def _save_arrays(path: Path, arrays: dict[str, Any]) -> bool:
    try:
        np.savez(path.with_suffix(".npz"), **arrays)
    except Exception:
        path.with_suffix(".npz").unlink(missing_ok=True)
        return False
    return True
