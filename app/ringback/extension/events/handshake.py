"""Advertises Events in `initialize` and `server/discover`, in both spellings.

It is the outermost middleware: the SDK drops the top-level key `events` from every handshake and `extensions` from a legacy
one, and so do FastMCP's middlewares.
"""

from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from pydantic import BaseModel

from ringback.protocol.mcp_events.names import advertise_events

_HANDSHAKE_METHODS: Final = frozenset({"initialize", "server/discover"})


async def _advertise(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    if ctx.method not in _HANDSHAKE_METHODS:
        return result
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    handshake: dict[str, Any] = dict(result or {})
    capabilities = dict(cast("dict[str, Any]", handshake.get("capabilities") or {}))
    advertise_events(capabilities, list_changed=False)
    return {**handshake, "capabilities": capabilities}


def install_handshake(middleware: list[ServerMiddleware[Any]]) -> None:
    """Add the middleware to a server's, once."""
    if _advertise not in middleware:
        middleware.insert(0, _advertise)
