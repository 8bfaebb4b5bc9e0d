"""How every store keeps values: instants as integer milliseconds since 1970, JSON as text.

The stores keep the same values, so that `ringback copy` compares rows as they are. A database without a boolean type returns
booleans as 0 and 1.
"""

from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.storage.codec import ColumnType, ColumnTypes
from ringback.storage.records import Records


def instant_to_column(value: datetime | None) -> int | None:
    return None if value is None else epoch_milliseconds(value)


def column_to_instant(value: int | None) -> datetime | None:
    return None if value is None else from_epoch_milliseconds(value)


def json_to_column(value: Any) -> str:
    return jsontext.dumps(value).decode()


def count_bytes(text: str) -> int:
    """Bytes of the text as UTF-8. Most texts are ASCII, and are not encoded."""
    return len(text) if text.isascii() else len(text.encode())


RECORDS: Final = Records(
    ColumnTypes(
        instant=ColumnType(encode=epoch_milliseconds, decode=from_epoch_milliseconds),
        boolean=ColumnType(decode=bool),
        json=ColumnType(encode=json_to_column, decode=jsontext.loads),
    )
)
