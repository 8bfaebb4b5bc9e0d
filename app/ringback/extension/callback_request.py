"""What a client's `_meta` says about the callback that it wants, read once and never handed on: there is a secret in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import INVALID_PARAMS
from pydantic import Field, ValidationError

from ringback.client.options import CallbackOptions
from ringback.schemas.fields import Label, RequestBody
from ringback.schemas.webhooks import CallbackBody

RINGBACK_META_PREFIX: Final = "ringback/"
CALLBACK_META_KEY: Final = "ringback/callback"
CLIENT_SESSION_ID_META_KEY: Final = "ringback/clientSessionId"
CORRELATION_ID_META_KEY: Final = "ringback/correlationId"
CALL_ID_META_KEY: Final = "ringback/callId"

Meta = Mapping[str, Any]


class _CallbackRequestForm(RequestBody):
    callback: CallbackBody | None = Field(alias=CALLBACK_META_KEY)
    client_session_id: Label | None = Field(alias=CLIENT_SESSION_ID_META_KEY)
    correlation_id: Label | None = Field(alias=CORRELATION_ID_META_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """What one client wants for one call."""

    callback: CallbackOptions | None = field(repr=False)
    client_session_id: str | None
    correlation_id: str | None

    def report_labels(self) -> dict[str, str]:
        """The client's own names, as reports say them."""
        labels = {"client_session_id": self.client_session_id, "correlation_id": self.correlation_id}
        return {name: label for name, label in labels.items() if label is not None}

    def response_meta(self, call_id: str | None) -> dict[str, str]:
        """What goes into the `_meta` of an answer."""
        ids = {
            CALL_ID_META_KEY: call_id,
            CLIENT_SESSION_ID_META_KEY: self.client_session_id,
            CORRELATION_ID_META_KEY: self.correlation_id,
        }
        return {name: id_ for name, id_ in ids.items() if id_ is not None}


def parse_callback_request(meta: Meta) -> CallbackRequest:
    """What the client asks for. Raises an `MCPError` (invalid params) that names the key and never shows a value."""
    try:
        form = _CallbackRequestForm.model_validate(
            {key: meta.get(key) for key in (CALLBACK_META_KEY, CLIENT_SESSION_ID_META_KEY, CORRELATION_ID_META_KEY)}
        )
    except ValidationError as problem:
        raise MCPError(INVALID_PARAMS, f"_meta: {format_validation_error(problem)}") from None
    if form.callback is not None and form.callback.secret is None:
        raise MCPError(
            INVALID_PARAMS, f"_meta: {CALLBACK_META_KEY}: send a secret of your own, whsec_…, to verify callbacks with."
        )
    return CallbackRequest(
        callback=meta.get(CALLBACK_META_KEY),
        client_session_id=form.client_session_id,
        correlation_id=form.correlation_id,
    )


def format_validation_error(problem: ValidationError) -> str:
    """Where the first mistake is and what it is, never the value: it may be a secret."""
    first = problem.errors(include_input=False, include_context=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def strip_callback(ctx: ServerRequestContext[Any, Any]) -> ServerRequestContext[Any, Any]:
    """The request as the tool may see it: it might pass its `_meta` on."""
    if ctx.meta is None or CALLBACK_META_KEY not in ctx.meta:
        return ctx
    params = dict(ctx.params or {})
    return replace(
        ctx,
        meta=_strip_callback_key(ctx.meta),
        params={**params, "_meta": _strip_callback_key(params.get("_meta") or {})},
    )


def _strip_callback_key(meta: Meta) -> Any:
    return {key: value for key, value in meta.items() if key != CALLBACK_META_KEY}
