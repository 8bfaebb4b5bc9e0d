"""How values stand in columns: instants as integer milliseconds, JSON as text."""

from datetime import datetime
from typing import Any

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds


def instant_to_column(value: datetime | None) -> int | None:
    return None if value is None else epoch_milliseconds(value)


def column_to_instant(value: int | None) -> datetime | None:
    return None if value is None else from_epoch_milliseconds(value)


def json_to_column(value: Any) -> str:
    return jsontext.dumps(value).decode()


def optional_json_to_column(value: Any) -> str | None:
    return None if value is None else json_to_column(value)


def column_to_optional_json(text: str | None) -> Any:
    return None if text is None else jsontext.loads(text)
