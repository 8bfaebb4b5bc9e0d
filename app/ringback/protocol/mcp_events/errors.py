"""The errors of MCP Events, by name (mcp-events §7).

The specifications agree on the names and not on the codes: `ErrorProfile` selects the codes. The name is always in the message,
so that a client can read the kind of an error whatever the codes become.

    InvalidParams            arguments against the schema, a malformed URL, a bad secret
    NotFound                 data {kind: "event" | "subscription"}
    Forbidden                no principal, or not allowed
    ResourceExhausted        data {limit, max}
    Unsupported              data {feature, value}, or {feature, reason}
    CallbackEndpointError    data {reason}: a `CallbackFailure`
    InternalError            the server cannot answer now; the same request may succeed later
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from ringback.suggestions import find_similar


class EventErrorName(StrEnum):
    INVALID_PARAMS = "InvalidParams"
    NOT_FOUND = "NotFound"
    FORBIDDEN = "Forbidden"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    UNSUPPORTED = "Unsupported"
    CALLBACK_ENDPOINT_ERROR = "CallbackEndpointError"
    INTERNAL_ERROR = "InternalError"


class ErrorProfile(StrEnum):
    """Whose error codes a client gets. Stored with a subscription, for its `terminated` envelope."""

    SKETCH = "sketch"
    """The design sketch: ChatGPT, the AI SDK, and every client that does not declare the extension."""
    SEP = "sep"
    """SEP-3415, for a request that declares the extension."""


class CallbackFailure(StrEnum):
    """The categories of `data.reason` and of `deliveryStatus.lastError`. Never a receiver's own words."""

    CONNECTION_REFUSED = "connection_refused"
    TIMEOUT = "timeout"
    TLS_ERROR = "tls_error"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    CHALLENGE_FAILED = "challenge_failed"


_CODES: Final[Mapping[EventErrorName, tuple[int, int]]] = {
    EventErrorName.INVALID_PARAMS: (-32602, -32602),
    EventErrorName.NOT_FOUND: (-32011, -32023),
    EventErrorName.FORBIDDEN: (-32012, -32024),
    EventErrorName.RESOURCE_EXHAUSTED: (-32013, -32025),
    EventErrorName.UNSUPPORTED: (-32014, -32026),
    EventErrorName.CALLBACK_ENDPOINT_ERROR: (-32015, -32027),
    EventErrorName.INTERNAL_ERROR: (-32603, -32603),
}
"""The codes of the sketch and of the SEP's draft, which calls its own provisional."""


class EventError(Exception):
    """A refusal of one of the five methods, or the reason why a subscription has ended."""

    def __init__(self, name: EventErrorName, detail: str, data: Mapping[str, Any] | None = None) -> None:
        """`detail` is one sentence that says what to do; it contains no secret and no text of a receiver."""
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail
        self.data = None if data is None else dict(data)

    @property
    def message(self) -> str:
        return f"{self.name}: {self.detail}"


def error_code(profile: ErrorProfile, name: EventErrorName) -> int:
    sketch, sep = _CODES[name]
    return sep if profile is ErrorProfile.SEP else sketch


def read_error_name(code: int, message: str) -> EventErrorName | None:
    """The name of a server's error: at the beginning of its message, or else by its code in either specification."""
    named = next((name for name in EventErrorName if message.startswith(name)), None)
    return named or next((name for name, codes in _CODES.items() if code in codes), None)


def to_error_object(error: EventError, profile: ErrorProfile) -> dict[str, Any]:
    """The JSON-RPC error object `{code, message, data?}`."""
    data = {} if error.data is None else {"data": error.data}
    return {"code": error_code(profile, error.name), "message": error.message, **data}


def invalid_params(detail: str) -> EventError:
    return EventError(EventErrorName.INVALID_PARAMS, detail)


def event_not_found(name: str, known: Sequence[str] = ()) -> EventError:
    """`known` are the names that the caller may discover, among which the one that was meant is sought."""
    shown = name if len(name) <= _SHOWN_NAME_LENGTH_MAX else f"{name[:_SHOWN_NAME_LENGTH_MAX]}…"
    meant = _find_meant(name, known)
    hint = "" if meant is None else f" Did you mean {meant!r}?"
    detail = f"There is no event type {shown!r}.{hint} List the event types: events/list."
    return EventError(EventErrorName.NOT_FOUND, detail, {"kind": "event"})


def _find_meant(name: str, known: Sequence[str]) -> str | None:
    """An upstream's own name of an event, or a similar name. Only few and short names are compared: it takes milliseconds."""
    if len(name) > _SHOWN_NAME_LENGTH_MAX:
        return None
    compared = [each for each in known[:_COMPARED_NAMES_MAX] if len(each) <= _SHOWN_NAME_LENGTH_MAX]
    of_upstream = [each for each in compared if each.endswith(f"/{name}")]
    return next(iter(of_upstream), None) or find_similar(name, compared)


def subscription_not_found() -> EventError:
    detail = "You have no subscription with this name, these arguments and this delivery.url."
    return EventError(EventErrorName.NOT_FOUND, detail, {"kind": "subscription"})


def forbidden(detail: str) -> EventError:
    return EventError(EventErrorName.FORBIDDEN, detail)


def resource_exhausted(detail: str, *, limit: str, maximum: int) -> EventError:
    """`limit` is the name of the quota, `maximum` its value."""
    return EventError(EventErrorName.RESOURCE_EXHAUSTED, detail, {"limit": limit, "max": maximum})


def unsupported(detail: str, *, feature: str, value: Any) -> EventError:
    return EventError(EventErrorName.UNSUPPORTED, detail, {"feature": feature, "value": value})


def callback_endpoint_error(reason: CallbackFailure, detail: str) -> EventError:
    return EventError(EventErrorName.CALLBACK_ENDPOINT_ERROR, detail, {"reason": str(reason)})


_COMPARED_NAMES_MAX: Final = 100
"""Names that are compared with an unknown one."""
_SHOWN_NAME_LENGTH_MAX: Final = 64
"""A longer name that a client sent is cut in the error."""
