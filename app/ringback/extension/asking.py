"""What a client's `_meta` says about the callback that it wants, read once and never handed on: there is a secret in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import INVALID_PARAMS
from pydantic import Field, ValidationError

from ringback.api.schemas.calls import CallbackBody
from ringback.api.schemas.fields import Body, Label
from ringback.client.options import CallbackOptions

OURS: Final = "ringback/"
CALLBACK: Final = "ringback/callback"
CLIENT_SESSION_ID: Final = "ringback/clientSessionId"
CORRELATION_ID: Final = "ringback/correlationId"
CALL_ID: Final = "ringback/callId"

Meta = Mapping[str, Any]


class _Asked(Body):
    callback: CallbackBody | None = Field(alias=CALLBACK)
    client_session_id: Label | None = Field(alias=CLIENT_SESSION_ID)
    correlation_id: Label | None = Field(alias=CORRELATION_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What one client wants for one call."""

    callback: CallbackOptions | None = field(repr=False)
    client_session_id: str | None
    correlation_id: str | None

    def labels(self) -> dict[str, str]:
        """The client's own names, as reports say them."""
        said = {"client_session_id": self.client_session_id, "correlation_id": self.correlation_id}
        return {name: label for name, label in said.items() if label is not None}

    def ids(self, call_id: str | None) -> dict[str, str]:
        """What goes into the `_meta` of an answer."""
        ids = {CALL_ID: call_id, CLIENT_SESSION_ID: self.client_session_id, CORRELATION_ID: self.correlation_id}
        return {name: id_ for name, id_ in ids.items() if id_ is not None}


def asking_of(meta: Meta) -> Asking:
    """What the client asks for. Raises an `MCPError` (invalid params) that names the key and never shows a value."""
    try:
        asked = _Asked.model_validate({key: meta.get(key) for key in (CALLBACK, CLIENT_SESSION_ID, CORRELATION_ID)})
    except ValidationError as problem:
        raise MCPError(INVALID_PARAMS, f"_meta: {explained(problem)}") from None
    if asked.callback is not None and asked.callback.secret is None:
        raise MCPError(
            INVALID_PARAMS, f"_meta: {CALLBACK}: send a secret of your own, whsec_…, to verify callbacks with."
        )
    return Asking(
        callback=meta.get(CALLBACK),
        client_session_id=asked.client_session_id,
        correlation_id=asked.correlation_id,
    )


def explained(problem: ValidationError) -> str:
    """Where the first mistake is and what it is, never the value: it may be a secret."""
    first = problem.errors(include_input=False, include_context=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def without_callback(ctx: ServerRequestContext[Any, Any]) -> ServerRequestContext[Any, Any]:
    """The request as the tool may see it: it might pass its `_meta` on."""
    if ctx.meta is None or CALLBACK not in ctx.meta:
        return ctx
    params = dict(ctx.params or {})
    return replace(ctx, meta=_rest_of(ctx.meta), params={**params, "_meta": _rest_of(params.get("_meta") or {})})


def _rest_of(meta: Meta) -> Any:
    return {key: value for key, value in meta.items() if key != CALLBACK}
