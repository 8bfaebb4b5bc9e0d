"""Keys of `_meta`: keys reserved for one connection, which are neither stored nor forwarded, and Ringback's own keys."""

from collections.abc import Mapping
from typing import Any, Final, cast

from ringback.domain.errors import InvalidRequest
from ringback.suggestions import find_similar

RINGBACK_META_PREFIX: Final = "ringback/"
"""A client's are read where they come in, and never go upstream; an upstream that is a Ringback too has some of its own."""
_MCP_META_PREFIX: Final = "io.modelcontextprotocol/"
"""Keys of the protocol (spec 2026-07-28, `_meta`)."""
_PROGRESS_TOKEN_KEY: Final = "progressToken"  # noqa: S105 - a key's name
"""The only one of them without a prefix. Each hop chooses its own; a server that echoes `_meta` returns ours."""


def is_reserved_meta_key(key: str) -> bool:
    """Whether the key is reserved for one connection."""
    return key == _PROGRESS_TOKEN_KEY or key.startswith(_MCP_META_PREFIX)


def without_reserved_meta(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Params or a result without reserved keys in its `_meta`. A `_meta` that is not an object is removed."""
    meta = message.get("_meta", {})
    known = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    kept = {key: value for key, value in known.items() if not is_reserved_meta_key(key)}
    if kept == meta:
        return message
    rest = {key: value for key, value in message.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def add_meta(result: Mapping[str, Any], key: str, value: object) -> dict[str, Any]:
    """The result with this member in its `_meta`."""
    return {**result, "_meta": {**(result.get("_meta") or {}), key: value}}


# The `ringback/` keys of requests (all but `callId`) and responses (the three ids).

CALL_ID_META_KEY: Final = "ringback/callId"
CLIENT_SESSION_ID_META_KEY: Final = "ringback/clientSessionId"
CORRELATION_ID_META_KEY: Final = "ringback/correlationId"
IDEMPOTENCY_KEY_META_KEY: Final = "ringback/idempotencyKey"
CALLBACK_META_KEY: Final = "ringback/callback"
INSTANCES_META_KEY: Final = "ringback/instances"
"""In results: the Ringback that answers, and those behind it (`upstreams.instances`)."""
SUBSCRIBER_META_KEY: Final = "ringback/subscriber"
"""In events/subscribe and events/unsubscribe of a server that subscribes for its clients: which of them owns the subscription.
It has no effect on a tools/call, which therefore refuses it."""


_KNOWN_KEYS: Final = frozenset(
    {
        CALL_ID_META_KEY,
        CLIENT_SESSION_ID_META_KEY,
        CORRELATION_ID_META_KEY,
        IDEMPOTENCY_KEY_META_KEY,
        CALLBACK_META_KEY,
    }
)
_NAMES: Final = sorted(key.removeprefix(RINGBACK_META_PREFIX) for key in _KNOWN_KEYS)
_SHOWN_LENGTH_MAX: Final = 60
"""Characters of an unknown key that an error shows."""


def require_known_keys(meta: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for a `ringback/` key that does not exist: a misspelt callback would be missed days later."""
    for key in meta:
        if key.startswith(RINGBACK_META_PREFIX) and key not in _KNOWN_KEYS:
            likely = find_similar(key.removeprefix(RINGBACK_META_PREFIX), _NAMES)
            advice = (
                f"Did you mean '{RINGBACK_META_PREFIX}{likely}'?"
                if likely
                else f"Known keys: {', '.join(sorted(_KNOWN_KEYS))}."
            )
            raise InvalidRequest(f"_meta has no key '{key[:_SHOWN_LENGTH_MAX]}'. {advice}")


def build_ids_meta(*, call_id: str | None, client_session_id: str | None, correlation_id: str | None) -> dict[str, Any]:
    """The ids for the `_meta` of a message about a call; an absent id is left out."""
    ids = {
        CALL_ID_META_KEY: call_id,
        CLIENT_SESSION_ID_META_KEY: client_session_id,
        CORRELATION_ID_META_KEY: correlation_id,
    }
    return {key: id_ for key, id_ in ids.items() if id_ is not None}
