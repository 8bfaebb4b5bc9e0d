"""Reads the JSON-RPC message of a POST, once for all that handles it.

    an Accept without one of the two forms           -32600, with the id null and HTTP status 406: the body is not read
    a Content-Type other than JSON                   the same with 415
    no JSON                                          -32700, with the id null
    no object; two members of one name; an odd id    -32600, with the id null
    another form than JSON-RPC 2.0 in MCP            -32600, with the id if there is a method
    a value that cannot be written again             -32602, with HTTP status 200 in a legacy session
    more than 128 KiB in a request that waits long   the same
    anything else                                    the message, in the state of the ASGI scope

Two readers of one message must not understand two different ones: a filter in front of Ringback may read the first member of a
name, and most parsers keep the last. A request whose id is neither a string nor an integer would look like a notification to
the SDK, and its client would wait without end. The SDK refuses wrong headers too, but with an empty body or plain text, which
clients do not show.
"""

import json
import re
from collections.abc import MutableMapping
from typing import Any, Final, cast

from starlette.datastructures import Headers
from starlette.types import Scope

from ringback.domain import jsontext
from ringback.domain.errors import (
    MalformedMessage,
    NotAcceptable,
    UnexpectedMediaType,
    UnreadableMessage,
    UnstorableMessage,
)
from ringback.schemas.jsonrpc_errors import MESSAGE_ID_KEY

_MESSAGE_KEY: Final = "ringback.jsonrpc_message"
"""The key of the message in the ASGI scope's state."""
_BODY_KEY: Final = "ringback.jsonrpc_body"
"""The key of the body there."""
_NOTIFICATION_PREFIX: Final = "notifications/"
_MEDIA_TYPE: Final = "application/json"
_STREAM_MEDIA_TYPE: Final = "text/event-stream"
_WAITING_METHODS: Final = frozenset({"subscriptions/listen", "events/stream", "tasks/result"})
"""Requests that wait for minutes or days. Their messages are in memory meanwhile."""
WAITING_REQUEST_BYTES_MAX: Final = 128 * 1024
"""The body of such a request: two thousand ids or URIs. A principal may have a hundred streams and many more connections."""
_ZERO_WEIGHT: Final = re.compile(r"q=0(\.0{0,3})?", re.IGNORECASE)
"""The parameter of a media range that its client does not accept (RFC 9110 §12.4.2)."""
ACCEPT_LENGTH_MAX: Final = 2_000
"""Characters of an Accept header. A longer one would hold up other requests for milliseconds, and is refused."""
_USUAL_ACCEPT: Final = "application/json, text/event-stream"
"""What the SDKs send."""


def require_media_types(scope: Scope) -> None:
    """Check the headers of a POST: its body is JSON, and its client accepts JSON and event streams.

    Raises `NotAcceptable` or `UnexpectedMediaType`.
    """
    headers = Headers(scope=scope)
    accept = headers.get("accept", "")
    if accept != _USUAL_ACCEPT and not (accepts(accept, _MEDIA_TYPE) and accepts(accept, _STREAM_MEDIA_TYPE)):
        raise NotAcceptable(
            f"Send the header 'Accept: {_USUAL_ACCEPT}': a response is one of the two. Its media types must both be accepted."
        )
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _MEDIA_TYPE:
        raise UnexpectedMediaType(
            f"Send the header 'Content-Type: {_MEDIA_TYPE}': the body of a POST is a JSON-RPC message."
        )


def accepts(accept: str, media_type: str) -> bool:
    """Whether a client with this header accepts the media type. The most specific range that matches counts (§12.5.1)."""
    if len(accept) > ACCEPT_LENGTH_MAX:
        return False
    is_accepted = dict[str, bool]()
    for each in accept.lower().split(","):
        media_range, *parameters = (part.strip() for part in each.split(";"))
        weight_is_zero = any(_ZERO_WEIGHT.fullmatch(part) for part in parameters)
        is_accepted[media_range] = is_accepted.get(media_range, False) or not weight_is_zero
    general = media_type.partition("/")[0]
    return next((is_accepted[each] for each in (media_type, f"{general}/*", "*/*") if each in is_accepted), False)


def read_message(body: bytes, scope: Scope) -> dict[str, Any]:
    """The message, which `get_message` returns from now on; raises `MalformedMessage`."""
    message = _require_object(_parse(body))
    _require_valid_id(message)
    if "method" in message and _is_storable(message.get("id")):
        scope["state"][MESSAGE_ID_KEY] = message.get("id")
    _require_message_form(message)
    _require_strict_values(body)
    if not _is_storable(message):
        raise UnstorableMessage(
            f"The body has an integer of more than {jsontext.INTEGER_DIGITS_MAX} digits, or more than 250 levels. Send such a "
            "number as a string."
        )
    _require_small_wait(message, body)
    scope["state"][_BODY_KEY] = body
    set_message(scope["state"], message)
    return message


def set_message(state: MutableMapping[str, Any], message: Any) -> None:
    """Set the message of a request that Ringback makes itself: no body of a client has it."""
    state[_MESSAGE_KEY] = message


def get_body(scope: Scope) -> bytes:
    """The body of this request, which `read_message` has read; empty for another method than POST."""
    body: bytes = scope["state"].get(_BODY_KEY, b"")
    return body


def get_message(scope: Scope) -> Any:
    """The message of this request; None if its body was not read."""
    return scope["state"].get(_MESSAGE_KEY)


def detach_scope(scope: Scope) -> Scope:
    """The scope for what outlives the request: without message, id, body, headers and query, each of which can be large."""
    state = dict(scope["state"])
    forget_message(state)
    return {**scope, "state": state, "headers": [], "query_string": b""}


def forget_message(state: MutableMapping[str, Any]) -> None:
    """Remove all three from the state of a request that was served: its connection holds the state until the next one."""
    for key in (_MESSAGE_KEY, _BODY_KEY, MESSAGE_ID_KEY):
        state.pop(key, None)


def _parse(body: bytes) -> Any:
    try:
        return jsontext.loads_unique(body)
    except jsontext.RepeatedName as problem:
        raise MalformedMessage(f"The body {problem.fault}") from None
    except json.JSONDecodeError as problem:
        raise UnreadableMessage(jsontext.describe_refusal(problem)) from None
    except UnicodeDecodeError as problem:
        raise UnreadableMessage(f"The body is not UTF-8 at byte {problem.start}.") from None
    except RecursionError:
        raise UnreadableMessage("The body has too many levels. Send at most 250.") from None


def _require_strict_values(body: bytes) -> None:
    """Refuse numbers and texts that not all parsers read. Python's parser takes NaN, and surrogates without a pair."""
    try:
        jsontext.loads(body)
    except json.JSONDecodeError as problem:
        raise UnstorableMessage(jsontext.describe_refusal(problem)) from None


def _require_small_wait(message: dict[str, Any], body: bytes) -> None:
    if len(body) > WAITING_REQUEST_BYTES_MAX and message.get("method") in _WAITING_METHODS:
        raise UnstorableMessage(
            f"A request of {message['method']} may have {WAITING_REQUEST_BYTES_MAX} bytes at most, because it waits. Subscribe "
            "to less."
        )


def _is_storable(value: Any) -> bool:
    try:
        jsontext.dumps(value)
    except TypeError:
        return False
    return True


def _require_object(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise MalformedMessage(
            "The body must be one JSON-RPC message, which is an object. Send each message by itself."
        )
    return cast("dict[str, Any]", message)


def _require_message_form(message: dict[str, Any]) -> None:
    """Refuse what is no JSON-RPC message. The SDK would answer without the id of the request, and with the model's own text."""
    match message:
        case {"jsonrpc": "2.0", "method": str()} if isinstance(message.get("params", {}), dict | None):
            return
        case {"jsonrpc": "2.0", "id": int() | str(), "result": dict()} if "method" not in message:
            return
        case {"jsonrpc": "2.0", "id": int() | str() | None, "error": {"code": int(), "message": str()}} if (
            "method" not in message
        ):
            return
        case _:
            raise MalformedMessage(
                "The body is no JSON-RPC message of MCP. Send 'jsonrpc': '2.0', a method, an id unless it is a notification, "
                "and params, if any, as an object. Or send a response: 'jsonrpc': '2.0', the id of the request, and a result "
                "as an object, or an error with a code and a message."
            )


def _require_valid_id(message: dict[str, Any]) -> None:
    """Some clients write `"id": null` into notifications, which need no response."""
    if "method" not in message or "id" not in message:
        return
    request_id = message["id"]
    is_notification = request_id is None and str(message["method"]).startswith(_NOTIFICATION_PREFIX)
    if isinstance(request_id, bool) or not (is_notification or isinstance(request_id, int | str)):
        raise MalformedMessage("The id of a request must be a string or an integer. Leave it out for a notification.")
