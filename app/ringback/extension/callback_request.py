"""The callback and labels in a client's `_meta`, which the tool does not see: a callback contains a secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import INVALID_PARAMS
from pydantic import Field, ValidationError

from ringback.client.options import CallbackOptions
from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import (
    CALLBACK_META_KEY,
    CLIENT_SESSION_ID_META_KEY,
    CORRELATION_ID_META_KEY,
    build_ids_meta,
    require_known_keys,
)
from ringback.schemas.fields import Label, RequestBody
from ringback.schemas.validation_errors import describe_validation_errors
from ringback.schemas.webhook_requests import CallCallbackBody

Meta = Mapping[str, Any]


class _CallbackRequestForm(RequestBody):
    callback: CallCallbackBody | None = Field(alias=CALLBACK_META_KEY)
    client_session_id: Label | None = Field(alias=CLIENT_SESSION_ID_META_KEY)
    correlation_id: Label | None = Field(alias=CORRELATION_ID_META_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """The callback and labels that one client sends for one call."""

    callback: CallbackOptions | None = field(repr=False)
    client_session_id: str | None
    correlation_id: str | None

    def report_labels(self) -> dict[str, str]:
        """The labels as members of a report."""
        labels = {"client_session_id": self.client_session_id, "correlation_id": self.correlation_id}
        return {name: label for name, label in labels.items() if label is not None}

    def response_meta(self, call_id: str | None) -> dict[str, str]:
        """The ids for the `_meta` of the response."""
        return build_ids_meta(
            call_id=call_id, client_session_id=self.client_session_id, correlation_id=self.correlation_id
        )


def parse_callback_request(meta: Meta) -> CallbackRequest:
    """Parse the `_meta`. Raises an `MCPError` (invalid params) that names the key and never shows a value."""
    try:
        require_known_keys(meta)
    except InvalidRequest as problem:
        raise MCPError(INVALID_PARAMS, problem.detail) from None
    try:
        form = _CallbackRequestForm.model_validate(
            {key: meta.get(key) for key in (CALLBACK_META_KEY, CLIENT_SESSION_ID_META_KEY, CORRELATION_ID_META_KEY)}
        )
    except ValidationError as problem:
        raise MCPError(
            INVALID_PARAMS, f"_meta: {describe_validation_errors(problem, model=_CallbackRequestForm)[0]}"
        ) from None
    if form.callback is not None and form.callback.secret is None:
        raise MCPError(
            INVALID_PARAMS, f"_meta: {CALLBACK_META_KEY}: send a secret, whsec_…, with which you verify callbacks."
        )
    return CallbackRequest(
        callback=meta.get(CALLBACK_META_KEY),
        client_session_id=form.client_session_id,
        correlation_id=form.correlation_id,
    )


def strip_callback(ctx: ServerRequestContext[Any, Any]) -> ServerRequestContext[Any, Any]:
    """The request without the callback: the tool could pass its `_meta` on."""
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
