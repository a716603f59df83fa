"""The curator's side: real releases drawn with OpenDP, and what OpenDP writes about its own read into a `Release`.

`Mechanism.sample` adds noise in floating point, which is not safe to publish. `release` lets OpenDP compute the
statistic, choose the scale for the budget and add the noise; the result states the exact law of that noise.
"""

from noisewise.curator.drawing import Query, Table, release, release_file
from noisewise.curator.measurements import from_opendp_json
from noisewise.curator.summaries import from_opendp_summary

__all__ = ["Query", "Table", "from_opendp_json", "from_opendp_summary", "release", "release_file"]
