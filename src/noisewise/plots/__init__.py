"""Pictures of results: posteriors, calibrations, and the paths of fits."""
