"""Packages that are imported inside functions, each with its reason. All others are imported at the head of a file."""

SLOW = {
    "pandas": "tables; 0.6 s",
    "matplotlib": "pictures; 0.5 s",
    "xarray": "labelled results; 0.8 s, pandas included",
    "scipy.stats": "0.8 s",
    "scipy.integrate": "0.2 s",
    "scipy.optimize": "0.2 s",
    "rich": "the terminal; 0.06 s, and no process without one needs it",
    "h5py": "files of results; 0.02 s, and a library of its own to load",
    "h5netcdf": "files of results; imports h5py",
    "scipy.spatial": "polytopes of one mechanism; 0.03 s",
}
"""Required packages that `import noisewise` leaves to the function that needs them, so that it stays quick.

Seconds are those after `import noisewise`, from a warm disk."""
EXTRAS = {
    "opendp": "opendp",
    "distributed": "dask",
    "formulaic": "formula",
    "shiny": "page",
    "uvicorn": "page",
    "arviz_plots": "arviz",
    "arviz_base": "arviz",
    "pyarrow": "parquet",
}
"""Packages that a plain install does not have, and the extra in pyproject.toml that brings them."""
LATE = {**SLOW, **EXTRAS}
