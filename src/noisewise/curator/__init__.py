"""The curator's side: real releases drawn with OpenDP, and what OpenDP writes about its own read into a `Release`.

`Mechanism.sample` adds noise in floating point, which is not safe to publish. `release` lets OpenDP compute the
statistic, choose the scale for the budget and add the noise; the result states the exact law of that noise.
"""

from noisewise.curator.drawing import Prepared, prepare, release, release_file
from noisewise.curator.ledger import Ledger
from noisewise.curator.measurements import from_opendp_json
from noisewise.curator.plan import Plan, Query
from noisewise.curator.promise import in_words, warning
from noisewise.curator.starters import starter
from noisewise.curator.summaries import from_opendp_summary
from noisewise.curator.table import Table

__all__ = [
    "Ledger",
    "Plan",
    "Prepared",
    "Query",
    "Table",
    "from_opendp_json",
    "from_opendp_summary",
    "in_words",
    "prepare",
    "release",
    "release_file",
    "starter",
    "warning",
]
