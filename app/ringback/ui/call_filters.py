"""The filter of the list of calls: read from the query of a URL, and written back into links and fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import urlencode

from ringback.domain.call import LABEL_LENGTH_MAX, CallStatus
from ringback.domain.call_rows import CallFilter
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX
from ringback.domain.validation import require_printable
from ringback.ui.viewer import Viewer

E = TypeVar("E", bound=StrEnum)

_FIELDS: Final = ("status", "upstream", "tool", "client_session_id", "correlation_id", "principal")
"""Fields of the form, in the order of links."""
_LABELS: Final = {
    "status": "status",
    "upstream": "upstream",
    "tool": "tool",
    "client_session_id": "client session",
    "correlation_id": "correlation id",
    "principal": "principal",
}


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
        return write_query({**self.fields, **changes})

    def describe(self) -> str:
        """For a sentence: `status failed, tool report`."""
        return ", ".join(f"{_LABELS[name]} {text}" for name, text in self.fields.items())


def read_call_query(query: Mapping[str, str], viewer: Viewer) -> CallQuery:
    """Raises `InvalidRequest` for a value that no call can have."""
    fields = {name: text for name in _FIELDS if (text := _read_text(query, name))}
    if not viewer.is_operator:
        fields.pop("principal", None)
    call_filter = CallFilter(
        client_session_id=fields.get("client_session_id"),
        correlation_id=fields.get("correlation_id"),
        status=_read_choice(fields.get("status"), CallStatus),
        upstream=fields.get("upstream"),
        tool=fields.get("tool"),
    )
    if viewer.client_session_id is not None:
        viewer.require_client_session(call_filter.client_session_id or viewer.client_session_id)
        call_filter = replace(call_filter, client_session_id=viewer.client_session_id)
    return CallQuery(fields=fields, call_filter=call_filter)


def write_query(fields: Mapping[str, str]) -> str:
    """The fields that are not empty as the query of a URL, with its question mark."""
    filled = {name: text for name, text in fields.items() if text}
    return f"?{urlencode(filled)}" if filled else ""


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
        raise InvalidRequest(f"The {_LABELS[name]} cannot be like this. {error}") from None


def _read_choice(text: str | None, choices: type[E]) -> E | None:
    if text is None:
        return None
    try:
        return choices(text)
    except ValueError:
        raise InvalidRequest(f"'{text}' is none of: {', '.join(choices)}.") from None
