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

from pydantic import ValidationError

from ringback.domain.call import LABEL_LENGTH_MAX, Call
from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import RINGBACK_META_PREFIX, is_reserved_meta_key
from ringback.schemas.webhooks import CallbackBody
from ringback.services.registrations import WebhookRegistration

CALL_ID_META_KEY: Final = "ringback/callId"
CLIENT_SESSION_ID_META_KEY: Final = "ringback/clientSessionId"
CORRELATION_ID_META_KEY: Final = "ringback/correlationId"
IDEMPOTENCY_KEY_META_KEY: Final = "ringback/idempotencyKey"
CALLBACK_META_KEY: Final = "ringback/callback"

_SESSION_KEYS: Final = (CLIENT_SESSION_ID_META_KEY, "client_session_id", "openai/session")
_CORRELATION_KEYS: Final = (CORRELATION_ID_META_KEY, "traceparent")
_PROGRESS_TOKEN_KEY: Final = "progress_token"  # noqa: S105 - a key's name, as the SDK spells it


def read_client_session_id(meta: Mapping[str, Any]) -> str | None:
    return _read_label(meta, _SESSION_KEYS)


def read_correlation_id(meta: Mapping[str, Any]) -> str | None:
    return _read_label(meta, _CORRELATION_KEYS)


def read_idempotency_key(meta: Mapping[str, Any]) -> str | None:
    return _read_label(meta, (IDEMPOTENCY_KEY_META_KEY,))


def has_ringback_key(meta: Mapping[str, Any]) -> bool:
    """Whether the request carries a key of ours: its client knows that a call outlives it."""
    return any(key.startswith(RINGBACK_META_PREFIX) for key in meta)


def select_upstream_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request's `_meta` may go upstream; each upstream's `pass_meta` decides what of it does."""
    return {
        key: value
        for key, value in meta.items()
        if not is_reserved_meta_key(key) and not key.startswith(RINGBACK_META_PREFIX) and key != _PROGRESS_TOKEN_KEY
    }


def build_call_meta(call: Call) -> dict[str, Any]:
    """What is said of a call wherever it is spoken of."""
    values = {
        CALL_ID_META_KEY: call.id,
        CLIENT_SESSION_ID_META_KEY: call.client_session_id,
        CORRELATION_ID_META_KEY: call.correlation_id,
    }
    return {key: value for key, value in values.items() if value is not None}


def with_call_meta(result: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The result with the call's labels in its `_meta`."""
    return with_meta(result, build_call_meta(call))


def with_meta(message: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """A result or params with this in their `_meta`, too."""
    return {**message, "_meta": {**message.get("_meta", {}), **meta}}


def _read_label(meta: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first that is there; a name of ours must be one, somebody else's is taken if it can be."""
    for key in keys:
        value = meta.get(key)
        if value is None:
            continue
        if isinstance(value, str) and 0 < len(value) <= LABEL_LENGTH_MAX and value.isprintable():
            return value
        if key.startswith(RINGBACK_META_PREFIX):
            raise InvalidRequest(f"_meta['{key}'] must be a text of 1 to {LABEL_LENGTH_MAX} printable characters.")
    return None


def parse_callback(meta: Mapping[str, Any]) -> WebhookRegistration | None:
    """What the request asks to be rung for; raises `InvalidRequest`, which shows no value: it may be a secret."""
    if (value := meta.get(CALLBACK_META_KEY)) is None:
        return None
    try:
        return CallbackBody.model_validate(value).to_registration()
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_context=False)[0]
        location = ".".join(str(step) for step in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"_meta['{CALLBACK_META_KEY}']{'.' if location else ''}{location}: {reason}") from None
