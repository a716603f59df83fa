"""Draws as one flat table, in the shape that R's package posterior reads: a `draws_df`."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from noisewise.results.posterior import Posterior


def draws_table(posterior: "Posterior") -> Any:
    """One row per draw: `.chain`, `.iteration` and `.draw`, counted from 1, then one column per scalar.

    Weighted draws have their log weights in `.log_weight`. Independent draws are one chain, islands one each. Truth
    values are 1 and 0: R would read "True" as a word.
    """
    table = posterior.to_pandas().rename(columns={"log_weight": ".log_weight"})
    table = table.astype(dict.fromkeys(table.select_dtypes("bool"), int))
    row = np.arange(len(posterior))
    length = max(len(posterior) // (posterior.chains or posterior.islands or 1), 1)
    for place, (name, number) in enumerate({".chain": row // length, ".iteration": row % length, ".draw": row}.items()):
        table.insert(place, name, number + 1)
    return table
