"""`_meta` between a client and Ringback, and between Ringback and an upstream.

Read from requests (`call_options` has the keys of the labels, and what clients say without `_meta`):

    ringback/callback          {url, secret?, events?, …}     a webhook for this call, validated as in REST
    ringback/subscriber        text                           of events/subscribe and unsubscribe: which client of a server that
                                                              subscribes for its clients (`protocol.mcp_events`)

Added to results, tasks, pending resources and questions: `ringback/callId`, and the two labels if the call has them.

The client's other keys go upstream as far as the upstream's `pass_meta` allows, except the keys that belong to one connection
(`io.modelcontextprotocol/…`, the progress token) and all `ringback/` keys: a callback's secret is neither stored in the call
nor forwarded.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from ringback.domain.call import LABEL_LENGTH_MAX, Call
from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import CALLBACK_META_KEY, RINGBACK_META_PREFIX, build_ids_meta, is_reserved_meta_key
from ringback.schemas.validation_errors import describe_validation_errors
from ringback.schemas.webhook_requests import CallCallbackBody
from ringback.services.webhooks.registrations import WebhookRegistration

_PROGRESS_TOKEN_KEY: Final = "progress_token"  # noqa: S105 - a key's name, as the SDK spells it


def read_label(meta: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first label present under these keys. A `ringback/` key must be valid; an invalid foreign key is skipped."""
    for key in keys:
        value = meta.get(key)
        if value is None:
            continue
        if isinstance(value, str) and 0 < len(value) <= LABEL_LENGTH_MAX and value.isprintable():
            return value
        if key.startswith(RINGBACK_META_PREFIX):
            raise InvalidRequest(f"_meta['{key}'] must be a string of 1 to {LABEL_LENGTH_MAX} printable characters.")
    return None


def has_ringback_key(meta: Mapping[str, Any]) -> bool:
    return any(key.startswith(RINGBACK_META_PREFIX) for key in meta)


def select_upstream_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a request's `_meta` that may go upstream; the upstream's `pass_meta` then selects from it."""
    return {
        key: value
        for key, value in meta.items()
        if not is_reserved_meta_key(key) and not key.startswith(RINGBACK_META_PREFIX) and key != _PROGRESS_TOKEN_KEY
    }


def build_call_meta(call: Call) -> dict[str, Any]:
    """The ids of a call, for the `_meta` of every message about it."""
    return build_ids_meta(call_id=call.id, client_session_id=call.client_session_id, correlation_id=call.correlation_id)


def with_call_meta(result: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The result with the call's ids in its `_meta`."""
    return with_meta(result, build_call_meta(call))


def with_meta(message: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """A result or params with `meta` added to their `_meta`."""
    return {**message, "_meta": {**message.get("_meta", {}), **meta}}


def parse_callback(meta: Mapping[str, Any]) -> WebhookRegistration | None:
    """The callback that the request asks for; raises `InvalidRequest` without the value, which may be a secret."""
    if (value := meta.get(CALLBACK_META_KEY)) is None:
        return None
    try:
        return CallCallbackBody.model_validate(value).to_registration()
    except ValidationError as problem:
        (detail,) = describe_validation_errors(problem, root=f"_meta['{CALLBACK_META_KEY}']", model=CallCallbackBody)
        raise InvalidRequest(detail) from None
