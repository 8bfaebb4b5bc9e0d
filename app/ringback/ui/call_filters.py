"""The filter of the list of calls: read from the query of a URL, and written back into links and fields."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

from ringback.domain.call import LABEL_LENGTH_MAX, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import cut_to_milliseconds
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX
from ringback.domain.validation import require_printable
from ringback.schemas.call_requests import REPEATS_FILTER_MAX
from ringback.services.live.home_listing import FAILED_OUTCOMES
from ringback.ui.query_parameters import keep_fields, require_known_filters, with_query
from ringback.ui.viewer import Viewer

E = TypeVar("E", bound=StrEnum)

_FIELDS: Final = (
    "status",
    "outcome",
    "upstream",
    "tool",
    "started",
    "client_session_id",
    "correlation_id",
    "since",
    "until",
    "min_runs",
    "min_delivery_attempts",
    "id_prefix",
    "principal",
)
"""Fields of the form, in the order of links."""
_LABELS: Final = {
    "status": "status",
    "outcome": "outcome",
    "upstream": "upstream",
    "tool": "tool",
    "started": "start",
    "client_session_id": "client session",
    "correlation_id": "correlation id",
    "since": "time",
    "until": "time",
    "min_runs": "number of runs",
    "min_delivery_attempts": "number of attempts",
    "id_prefix": "beginning of an id",
    "principal": "principal",
}


class Start(StrEnum):
    """Whether a call was sent to its upstream, as the form says it."""

    STARTED = "true"
    NOT_STARTED = "false"


START_CHOICES: Final = (("", "Any start"), (Start.STARTED, "started"), (Start.NOT_STARTED, "not started"))
FAILURES: Final = "failure"
"""The outcome of calls that ended without a result, or with an error of their tool, and were not cancelled."""
_ID_PREFIX: Final = re.compile(r"call_[0-9A-HJKMNP-TV-Z]{0,26}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuery:
    fields: Mapping[str, str]
    """The fields of the form that are not empty, with their text."""
    call_filter: CallFilter

    def get(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def is_filtered(self) -> bool:
        return bool(self.fields)

    def link(self, **changes: str) -> str:
        """The query string with these fields changed; an empty text removes a field. With its question mark."""
        return with_query("", {**self.fields, **changes})


def read_call_query(query: Mapping[str, str], viewer: Viewer) -> CallQuery:
    """Raises `InvalidRequest` for an unknown filter, and for a value that no call can have."""
    require_known_filters(query, _FIELDS)
    fields = {name: text for name in _FIELDS if (text := _read_text(query, name))}
    if not viewer.is_operator:
        fields.pop("principal", None)
    call_filter = CallFilter(
        client_session_id=fields.get("client_session_id"),
        correlation_id=fields.get("correlation_id"),
        status=_read_choice(fields.get("status"), CallStatus),
        upstream=fields.get("upstream"),
        tool=fields.get("tool"),
        started=_read_start(fields.get("started")),
        outcomes=_read_outcomes(fields.get("outcome")),
        since=_read_time(fields.get("since")),
        until=_read_time(fields.get("until")),
        id_prefix=_read_id_prefix(fields.get("id_prefix")),
        min_runs=_read_number(fields.get("min_runs"), least=1),
        min_delivery_attempts=_read_number(fields.get("min_delivery_attempts"), least=2),
    )
    if viewer.client_session_id is not None:
        viewer.require_client_session(call_filter.client_session_id or viewer.client_session_id)
        call_filter = replace(call_filter, client_session_id=viewer.client_session_id)
    return CallQuery(fields=fields, call_filter=call_filter)


def keep_refused_fields(query: Mapping[str, str], viewer: Viewer) -> CallQuery:
    """The fields as they were sent, for the form; without any filter."""
    names = [name for name in _FIELDS if name != "principal" or viewer.is_operator]
    return CallQuery(fields=keep_fields(query, names), call_filter=CallFilter())


def read_principal(query: Mapping[str, str]) -> str:
    """The principal whose rows an operator asks for; empty for all. Raises `InvalidRequest`."""
    return _read_text(query, "principal")


def list_choices(choices: type[StrEnum], any_text: str) -> Sequence[tuple[str, str]]:
    """The options of a select: the first one is no filter."""
    return [("", any_text), *((choice.value, choice.value.replace("_", " ")) for choice in choices)]


def _read_text(query: Mapping[str, str], name: str) -> str:
    text = query.get(name, "").strip()
    longest = PRINCIPAL_LENGTH_MAX if name == "principal" else LABEL_LENGTH_MAX
    if len(text) > longest:
        raise InvalidRequest(f"The {_LABELS[name]} has at most {longest} characters.")
    try:
        return require_printable(text)
    except ValueError as error:
        raise InvalidRequest(f"The {_LABELS[name]} is not valid. {error}") from None


def _read_choice(text: str | None, choices: type[E]) -> E | None:
    if text is None:
        return None
    try:
        return choices(text)
    except ValueError:
        raise InvalidRequest(f"'{text}' is none of: {', '.join(choices)}.") from None


def is_id_prefix(text: str) -> bool:
    """Whether a search for calls names the beginning of their ids."""
    return _ID_PREFIX.fullmatch(text) is not None


def _read_outcomes(text: str | None) -> frozenset[CallOutcome] | None:
    if text == FAILURES:
        return FAILED_OUTCOMES
    outcome = _read_choice(text, CallOutcome)
    return None if outcome is None else frozenset({outcome})


def _read_start(text: str | None) -> bool | None:
    start = _read_choice(text, Start)
    return None if start is None else start is Start.STARTED


def _read_id_prefix(text: str | None) -> str | None:
    if text is not None and not is_id_prefix(text):
        raise InvalidRequest("The id of a call begins with 'call_'.")
    return text


def _read_number(text: str | None, *, least: int) -> int:
    """Zero without a filter."""
    if text is None:
        return 0
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if not least <= number <= REPEATS_FILTER_MAX:
        raise InvalidRequest(f"Enter a whole number from {least} to {REPEATS_FILTER_MAX:,}.")
    return number


def _read_time(text: str | None) -> datetime | None:
    """A time without an offset is UTC: that is how a browser sends the field."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
        instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest("Enter a time like 2026-11-23T07:00. It is read as UTC.") from None
    if not _EARLIEST <= instant <= _LATEST:
        raise InvalidRequest("Enter a time of this century. It is read as UTC.")
    return cut_to_milliseconds(instant)
