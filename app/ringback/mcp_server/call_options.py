"""What a client sets for a call besides the tool and its arguments, in `_meta`, in a header, or in the MCP URL.

    option               `_meta`                       header                        query parameter
    client_session_id    ringback/clientSessionId,     Ringback-Client-Session-Id    client_session_id
                         client_session_id
    correlation_id       ringback/correlationId        Ringback-Correlation-Id       correlation_id
    idempotency key      ringback/idempotencyKey       Ringback-Idempotency-Key      -
    callback             ringback/callback             Ringback-Callback-Url         callback_url
    its secret           ringback/callback             Ringback-Callback-Secret      -
    webhook              -                             -                             webhook

For each option `_meta` counts first, then the header, then the query. After them come names that clients and tracing libraries
set without their user: `_meta`'s `openai/session` as client_session_id; `_meta`'s and then the header's `traceparent` as
correlation_id.

A callback is a webhook for this call only. With a client_session_id, calls of the session that give the same callback share
one webhook (`services.webhooks.shared_webhooks`), which receives events of these calls only. `webhook` names a registered
webhook: it receives this call's events whatever it filters by, each once. All other webhooks that match receive them too.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import ValidationError

from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import (
    CLIENT_SESSION_ID_META_KEY,
    CORRELATION_ID_META_KEY,
    IDEMPOTENCY_KEY_META_KEY,
    require_known_keys,
)
from ringback.mcp_server import meta
from ringback.mcp_server.http_options import HttpOptions, has_http_options, read_http_options, read_traceparent
from ringback.mcp_server.request_context import RequestContext
from ringback.schemas.validation_errors import describe_validation_errors
from ringback.schemas.webhook_requests import CallCallbackBody
from ringback.services.webhooks.registrations import WebhookRegistration

_SESSION_KEYS: Final = (CLIENT_SESSION_ID_META_KEY, "client_session_id")
_HOST_SESSION_KEYS: Final = ("openai/session",)
_CORRELATION_KEYS: Final = (CORRELATION_ID_META_KEY,)
_TRACE_KEYS: Final = ("traceparent",)
_IDEMPOTENCY_KEYS: Final = (IDEMPOTENCY_KEY_META_KEY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOptions:
    client_session_id: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    callback: WebhookRegistration | None = field(default=None, repr=False)
    """With the call's client_session_id, if it has one."""
    webhook_id: str | None = None

    @property
    def requests_callback(self) -> bool:
        return self.callback is not None or self.webhook_id is not None


def accepts_input(context: RequestContext) -> bool:
    """Whether calls of this client accept input: it declares elicitation, or its headers or its URL name a callback."""
    if context.supports_elicitation(frozenset()):
        return True
    with suppress(InvalidRequest):  # `initialize`, `server/discover` and tools/call refuse invalid options
        options = read_http_options(context.http_headers, context.query_string)
        return options.callback_url is not None or options.webhook is not None
    return False


def read_call_options(context: RequestContext) -> ToolCallOptions:
    """Read and validate the options of a `tools/call`. Raises `InvalidRequest`, which names the option and shows no value."""
    require_known_keys(context.meta)
    http = read_http_options(context.http_headers, context.query_string)
    session_id = _read_session_id(context, http)
    return ToolCallOptions(
        client_session_id=session_id,
        correlation_id=meta.read_label(context.meta, _CORRELATION_KEYS)
        or http.correlation_id
        or meta.read_label(context.meta, _TRACE_KEYS)
        or read_traceparent(context.http_headers),
        idempotency_key=meta.read_label(context.meta, _IDEMPOTENCY_KEYS) or http.idempotency_key,
        callback=_read_callback(context, http, session_id),
        webhook_id=http.webhook,
    )


def read_client_session_id(context: RequestContext) -> str | None:
    """The client_session_id of a request; raises `InvalidRequest`."""
    return _read_session_id(context, read_http_options(context.http_headers, context.query_string))


def check_http_options(context: RequestContext) -> None:
    """Raise `InvalidRequest` for headers or a URL that no call could have: a handshake says so before the first call."""
    read_http_options(context.http_headers, context.query_string)
    context.read_endpoint_wait_seconds()


def mentions_ringback(context: RequestContext) -> bool:
    """Whether the request has any option of Ringback: then the client knows that a call outlives the request."""
    return meta.has_ringback_key(context.meta) or has_http_options(context.http_headers, context.query_string)


def _read_session_id(context: RequestContext, http: HttpOptions) -> str | None:
    return (
        meta.read_label(context.meta, _SESSION_KEYS)
        or http.client_session_id
        or meta.read_label(context.meta, _HOST_SESSION_KEYS)
    )


def _read_callback(context: RequestContext, http: HttpOptions, session_id: str | None) -> WebhookRegistration | None:
    callback = meta.parse_callback(context.meta) or _parse_callback_url(http.callback_url)
    if callback is None:
        _refuse_secret(http)
        return None
    return replace(callback, secret=callback.secret or http.callback_secret, client_session_id=session_id)


def _refuse_secret(http: HttpOptions) -> None:
    if http.callback_secret is not None:
        raise InvalidRequest(
            "Header Ringback-Callback-Secret is sent without a callback: it signs the callbacks to Ringback-Callback-Url. Send "
            "both, or neither. A webhook that is named with webhook=wh_… has its own secret."
        )


def _parse_callback_url(url: str | None) -> WebhookRegistration | None:
    if url is None:
        return None
    try:
        return CallCallbackBody(url=url).to_registration()
    except ValidationError as problem:
        (detail,) = describe_validation_errors(problem, root="callback")
        raise InvalidRequest(detail) from None
