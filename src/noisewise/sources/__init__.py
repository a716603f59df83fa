"""Readers of private statistics as they are really published, each with its law: `nw.sources.census_nmf("...")`."""

from noisewise.sources.census import census_nmf
from noisewise.sources.page_views import wikimedia

__all__ = ["census_nmf", "wikimedia"]
