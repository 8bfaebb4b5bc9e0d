"""Event ids of legacy streams: a client that lost a stream sends the last one as `Last-Event-ID`.

    base64(seal(JSON)) "." number [".last" or ".p" progress]
           │                       │          └── the newest progress that the client has received on the stream
           │                       └── the event is the response: a client that has it lacks nothing of the stream
           └── what the stream carries, sealed for the session

An event id contains what any process needs to respond again, so nothing is stored for a stream, and the response survives a
restart. Only a session's own ids can be unsealed in it: forged ids and ids of other sessions are unknown. Number and marks are
not sealed: a client that changes them changes only what it gets itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from ringback.domain import jsontext
from ringback.domain.encryption import Sealer
from ringback.domain.errors import InvalidCursor
from ringback.domain.ids import CallId
from ringback.domain.meta import IDEMPOTENCY_KEY_META_KEY
from ringback.protocol.builtin_tools import is_builtin_tool
from ringback.signing.base64_text import decode_base64, encode_base64
from ringback.signing.sealing import UnsealError

EVENT_ID_LENGTH_MAX: Final = 8 * 1024
"""Characters; checked before unsealing. The longest id has half as many."""
PARAMS_BYTES_MAX: Final = 2 * 1024
"""Params that an event id contains, as JSON. Each event of a stream repeats its id, and larger requests are rare."""
REQUEST_ID_LENGTH_MAX: Final = 256
LAST_EVENT_MARK: Final = ".last"
PROGRESS_MARK: Final = ".p"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The request whose response a stream carries, as far as it is needed to respond again."""

    request_id: int | str
    method: str
    params: Mapping[str, Any] | None = field(repr=False)
    """None if they are too large. For tools/call of an upstream's tool, without the arguments."""
    call_id: CallId
    """The id of the call that this request starts, if it starts one."""
    progress_sent: float | None = None
    """The newest progress that the client has received, if it resumes the stream. Only greater progress may follow."""


@dataclass(frozen=True, slots=True)
class OwnStream:
    """The session's own stream (GET)."""

    log_id: str
    """Identifies the log of one process."""


@dataclass(frozen=True, slots=True)
class EventPosition:
    stream: StreamRequest | OwnStream
    number: int
    is_last: bool = False
    """Whether this event is the response of its stream, after which nothing follows."""


class EventIds:
    """Seals and unseals the ids of one session."""

    def __init__(self, sealer: Sealer, session_id: str) -> None:
        self._sealer = sealer
        self._associated_data = f"mcp.event_id/{session_id}"

    def seal_request(self, stream: StreamRequest) -> str:
        """The part of an event id before the number."""
        return self._seal([stream.request_id, stream.method, stream.params, stream.call_id])

    def seal_own_stream(self, stream: OwnStream) -> str:
        return self._seal([stream.log_id])

    def parse(self, event_id: str) -> EventPosition:
        """The position that the id names; raises `InvalidCursor` for an id of another session, or none of ours."""
        prefix, _, rest = event_id.partition(".")
        number, progress_mark, progress = rest.removesuffix(LAST_EVENT_MARK).partition(PROGRESS_MARK)
        if len(event_id) > EVENT_ID_LENGTH_MAX or not (number.isascii() and number.isdecimal()):
            raise unknown_event_id()
        try:
            progress_sent = float(progress) if progress_mark else None
            sealed = decode_base64(prefix)
            values = jsontext.loads(self._sealer.unseal(sealed, associated_data=self._associated_data))
        except (ValueError, UnsealError):
            raise unknown_event_id() from None
        stream = _build_stream(values)
        if isinstance(stream, StreamRequest):
            stream = replace(stream, progress_sent=progress_sent)
        return EventPosition(stream, int(number[:_NUMBER_DIGITS_MAX]), is_last=rest.endswith(LAST_EVENT_MARK))

    def _seal(self, values: list[Any]) -> str:
        return encode_base64(self._sealer.seal(jsontext.dumps(values), associated_data=self._associated_data))


_NUMBER_DIGITS_MAX: Final = 18


def unknown_event_id() -> InvalidCursor:
    return InvalidCursor("Unknown Last-Event-ID: it belongs to no stream of this session. Send the request again.")


def describe_request(message: Any, call_id: CallId) -> StreamRequest | None:
    """The request in a JSON-RPC message; None if it is none, or if its id is too long."""
    match message:
        case {"id": int() | str() as request_id, "method": str() as method, **rest}:
            pass
        case _:
            return None
    if isinstance(request_id, str) and len(request_id) > REQUEST_ID_LENGTH_MAX:
        return None
    params = rest.get("params", {})
    if method == "tools/call" and isinstance(params, dict):
        params = _select_call_params(cast("Mapping[str, Any]", params))
    return StreamRequest(request_id=request_id, method=method, params=_bound_params(params), call_id=call_id)


def _select_call_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how the call is responded to. Its arguments are stored with the call; a built-in tool is called again."""
    name, meta = params.get("name"), params.get("_meta")
    is_builtin = isinstance(name, str) and is_builtin_tool(name)
    kept = ("name", "task", "arguments") if is_builtin else ("name", "task")
    selected = {key: params[key] for key in kept if key in params}
    if isinstance(meta, dict):
        known = cast("Mapping[str, Any]", meta)
        selected["_meta"] = {key: known[key] for key in ("progressToken", IDEMPOTENCY_KEY_META_KEY) if key in known}
    return selected


def _bound_params(params: Any) -> dict[str, Any] | None:
    try:
        fits = isinstance(params, dict) and len(jsontext.dumps(params)) <= PARAMS_BYTES_MAX
    except TypeError:
        fits = False
    return cast("dict[str, Any]", params) if fits else None


def _build_stream(values: list[Any]) -> StreamRequest | OwnStream:
    if len(values) == 1:
        return OwnStream(values[0])
    request_id, method, params, call_id = values
    return StreamRequest(request_id=request_id, method=method, params=params, call_id=call_id)
