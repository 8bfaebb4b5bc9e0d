"""What holds for an occurrence, whichever way it came."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from ringback.cli.server_checks.connection import Json

_ISO_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?", re.IGNORECASE)


def parse_time(text: object) -> datetime | None:
    """The instant of an ISO 8601 text with date, T and time; None if it is none."""
    if not isinstance(text, str) or not _ISO_TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def find_faults(occurrence: Json, name: str, payload_schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with an occurrence of this event type, for a report."""
    rules = (
        (isinstance(occurrence.get("eventId"), str) and bool(occurrence["eventId"]), "eventId"),
        (occurrence.get("name") == name, "name"),
        (parse_time(occurrence.get("timestamp")) is not None, "timestamp"),
        (isinstance(occurrence.get("data"), dict), "data"),
        (isinstance(occurrence.get("cursor"), str | None), "cursor"),
        ("type" not in occurrence, "type"),
    )
    faults = [f"{member} is {occurrence.get(member, 'absent')!r}" for holds, member in rules if not holds]
    missing = list_missing_members(occurrence.get("data"), payload_schema)
    return [*faults, *(f"data lacks {member}" for member in missing)]


def list_missing_members(data: object, payload_schema: Mapping[str, Any]) -> Sequence[str]:
    """The required members of the payload that are not there."""
    required = payload_schema.get("required", [])
    if not isinstance(data, dict) or not isinstance(required, list):
        return []
    return [member for member in cast("list[str]", required) if member not in data]
