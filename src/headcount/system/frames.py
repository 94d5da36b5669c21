"""Tables as pandas data frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError

if TYPE_CHECKING:
    import pandas


def data_frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """The rows of a table as a pandas data frame.

    >>> data_frame([{"head": "3.4", "score": 0.5}]).columns.tolist()
    ['head', 'score']
    """
    try:
        import pandas
    except ImportError as error:
        raise HeadcountError(
            "Data frames need pandas: run pip install 'headcount[frames]', or pip install pandas."
        ) from error
    return pandas.DataFrame(list(rows))
