"""Functions that probe or sample repeatedly: `forecast`, `compare`, `calibrate`."""
