"""When rows need the janitor."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.upkeep import Upkeep
from ringback.storage.rows.columns import instant_to_column
from ringback.storage.rows.unit import SqlRows

_COLUMNS: Final = tuple(Upkeep)
"""In the order of the statement."""


class SqlUpkeep(SqlRows, noun="upkeep"):
    """Implements `domain.upkeep.UpkeepRows`."""

    async def find_first(self, *, due_after: datetime) -> Mapping[Upkeep, datetime]:
        (row,) = await self._sql.fetch_all("first", due_after=instant_to_column(due_after))
        return {
            kind: from_epoch_milliseconds(instant)
            for kind, instant in zip(_COLUMNS, row, strict=True)
            if instant is not None
        }
