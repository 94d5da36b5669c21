"""lm_eval with the model `headcount`: python -m headcount.integrations.lm_eval --tasks …"""

from __future__ import annotations

import sys

from headcount.errors import HeadcountError
from headcount.integrations import lm_eval


def main() -> None:
    """Register the model, and hand all arguments to lm_eval."""
    try:
        _ = lm_eval.HeadcountLM
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    except HeadcountError as error:
        print(f"headcount: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
