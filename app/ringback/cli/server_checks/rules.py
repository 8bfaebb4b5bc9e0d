"""Rules that several chapters share: the codes of errors, and what holds for an occurrence, whichever way it came.

Two allocations of the extension's codes are in use, and a server may answer with either.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from ringback.cli.server_checks.cases import Deviation, Violation
from ringback.cli.server_checks.message_stream import Json, Reply

INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601

ERROR_CODES: Final[Mapping[str, frozenset[int]]] = {
    "InvalidParams": frozenset({INVALID_PARAMS}),
    "NotFound": frozenset({-32011, -32023}),
    "Forbidden": frozenset({-32012, -32024}),
    "ResourceExhausted": frozenset({-32013, -32025}),
    "Unsupported": frozenset({-32014, -32026}),
    "CallbackEndpointError": frozenset({-32015, -32027}),
}
"""By name: the design sketch's code, which ChatGPT and the AI SDK know, and the one of SEP-3415's draft."""
SERVER_RANGE: Final = range(-32099, -31999)
"""The codes that JSON-RPC leaves to implementations: -32099 to -32000."""
LAST_ERRORS: Final = frozenset(
    {"connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"}
)
"""The only values of `lastError` and of `data.reason` of CallbackEndpointError."""
_ISO_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?", re.IGNORECASE)


def require_error(reply: Reply, name: str) -> str:
    """Raise unless the request was refused with this error. Another error is a deviation."""
    if reply.code in ERROR_CODES[name]:
        return reply.describe()
    wanted = " or ".join(str(code) for code in sorted(ERROR_CODES[name], reverse=True))
    observed = f"{reply.describe()}, expected {name} ({wanted})"
    if not reply.error:
        raise Violation(observed)
    raise Deviation(observed)


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
