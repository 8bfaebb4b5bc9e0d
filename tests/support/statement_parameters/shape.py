"""The form of statements' parameters, and the numbers of rows in the two compared stores."""

from typing import Any

StatementParameters = dict[str, dict[str, list[dict[str, Any]]]]
"""By noun and statement: the parameter sets with which it runs."""

FEW_ROWS, MANY_ROWS, MANY_ROWS_DEEP = 1_000, 10_000, 100_000
"""The numbers of rows of the two compared stores. A statement that visits every row takes thousands of steps more with many,
and some hundreds are allowed. A hundred thousand rows take 10 s of CPU to fill, so they belong to `scripts/test --deep`."""
