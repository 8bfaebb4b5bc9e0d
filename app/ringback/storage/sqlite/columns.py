"""How SQLite stores values: instants as integer milliseconds since 1970, booleans as 0 and 1, JSON as text."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.storage.codec import ColumnType, ColumnTypes
from ringback.storage.queries import load_statements
from ringback.storage.records import Records


def instant_to_column(value: datetime | None) -> int | None:
    return None if value is None else epoch_milliseconds(value)


def column_to_instant(value: int | None) -> datetime | None:
    return None if value is None else from_epoch_milliseconds(value)


def json_to_column(value: Any) -> str:
    return jsontext.dumps(value).decode()


RECORDS: Final = Records(
    ColumnTypes(
        instant=ColumnType(encode=epoch_milliseconds, decode=from_epoch_milliseconds),
        boolean=ColumnType(decode=bool),
        json=ColumnType(encode=json_to_column, decode=jsontext.loads),
    )
)


def load_sql(noun: str) -> Mapping[str, str]:
    """The statements of `sql/<noun>.sql`."""
    return load_statements("ringback.storage.sqlite", f"sql/{noun}.sql", RECORDS.by_name())
