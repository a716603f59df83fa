"""From an analysis file to a folder of results."""
