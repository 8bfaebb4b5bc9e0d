"""`_meta` between a client and us, and between us and an upstream.

In, each key once, ours first:

    ringback/clientSessionId   or  client_session_id, openai/session       the call's client_session_id
    ringback/correlationId     or  traceparent                             the call's correlation_id
    ringback/idempotencyKey                                                the same call, however often it is sent
    ringback/callback          {url, secret?, events?, …}                  a webhook for this call, with REST's checks

Out, on results, tasks, pending resources and questions: `ringback/callId`, and the two names where the call has them.

Upstream go the client's other keys as far as it is configured to be told them (`runner.link`), without what belongs to the wire
between two neighbours (`io.modelcontextprotocol/…`, the progress token) and without ours: a callback's secret is neither stored
nor forwarded.
"""

from collections.abc import Mapping
from typing import Any, Final

from ringback.domain.call import LABEL_LENGTH_MAX, Call
from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import OURS, is_reserved

CALL_ID: Final = "ringback/callId"
CLIENT_SESSION_ID: Final = "ringback/clientSessionId"
CORRELATION_ID: Final = "ringback/correlationId"
IDEMPOTENCY_KEY: Final = "ringback/idempotencyKey"
CALLBACK: Final = "ringback/callback"

_SESSION_KEYS: Final = (CLIENT_SESSION_ID, "client_session_id", "openai/session")
_CORRELATION_KEYS: Final = (CORRELATION_ID, "traceparent")
_PROGRESS_TOKEN: Final = "progress_token"  # noqa: S105 - a key's name, as the SDK spells it


def client_session_id(meta: Mapping[str, Any]) -> str | None:
    return _label(meta, _SESSION_KEYS)


def correlation_id(meta: Mapping[str, Any]) -> str | None:
    return _label(meta, _CORRELATION_KEYS)


def idempotency_key(meta: Mapping[str, Any]) -> str | None:
    return _label(meta, (IDEMPOTENCY_KEY,))


def speaks_of_us(meta: Mapping[str, Any]) -> bool:
    """Whether the request carries a key of ours: its client knows that a call outlives it."""
    return any(key.startswith(OURS) for key in meta)


def for_upstream(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request's `_meta` may go upstream; each upstream's `pass_meta` decides what of it does."""
    return {
        key: value
        for key, value in meta.items()
        if not is_reserved(key) and not key.startswith(OURS) and key != _PROGRESS_TOKEN
    }


def labels(call: Call) -> dict[str, Any]:
    """What is said of a call wherever it is spoken of."""
    told = {CALL_ID: call.id, CLIENT_SESSION_ID: call.client_session_id, CORRELATION_ID: call.correlation_id}
    return {key: value for key, value in told.items() if value is not None}


def labelled(result: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The result with the call's labels in its `_meta`."""
    return extended(result, labels(call))


def extended(message: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """A result or params with this in their `_meta`, too."""
    return {**message, "_meta": {**message.get("_meta", {}), **added}}


def _label(meta: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first that is there; a name of ours must be one, somebody else's is taken if it can be."""
    for key in keys:
        value = meta.get(key)
        if value is None:
            continue
        if isinstance(value, str) and 0 < len(value) <= LABEL_LENGTH_MAX and value.isprintable():
            return value
        if key.startswith(OURS):
            raise InvalidRequest(f"_meta['{key}'] must be a text of 1 to {LABEL_LENGTH_MAX} printable characters.")
    return None
