"""Stores what a legacy session agreed on, before its client gets the response to `initialize`.

The session ends if `initialize` fails, or if it cannot be stored: it would be unknown in a few minutes, and would count against
no quota.

This is a middleware because only the SDK's server knows whether the handshake has succeeded, and which version it negotiated.
"""

from collections.abc import Mapping
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from ringback.domain import jsontext
from ringback.domain.errors import RingbackError
from ringback.domain.mcp_sessions import STATE_BYTES_MAX
from ringback.mcp_server.auth import get_caller
from ringback.mcp_server.jsonrpc_errors import to_mcp_error
from ringback.mcp_server.request_context import SESSION_REFUSED_KEY, Endpoint, RequestContext
from ringback.mcp_server.session_activity import SessionActivity
from ringback.services.mcp_sessions import McpSessions

_CLIENT_INFO_KEYS = ("name", "title", "version")
"""What identifies a client. Its icons can be large, and nothing here shows them."""


class SessionRecorder:
    def __init__(self, endpoint: Endpoint, sessions: McpSessions, activity: SessionActivity) -> None:
        self._endpoint = endpoint
        self._sessions = sessions
        self._activity = activity

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "initialize" or ctx.request_id is None:
            return await call_next(ctx)
        context = RequestContext(caller=get_caller(ctx), endpoint=self._endpoint, sdk_context=ctx)
        if context.is_replayed or context.is_resumed:
            return await call_next(ctx)
        try:
            result = await call_next(ctx)
            if isinstance(result, dict):
                await self._store_session(context, result["protocolVersion"])
        except Exception:
            context.asgi_state[SESSION_REFUSED_KEY] = True
            raise
        return result

    async def _store_session(self, context: RequestContext, version: str) -> None:
        agreed = _select_params(context.sdk_context.params or {}, version)
        session_id, path = context.mcp_session_id, self._endpoint.path
        try:
            ended = await self._sessions.open_session(context.caller, session_id, path, agreed, self._activity)
            self._activity.add_ended(ended)
        except RingbackError as error:
            raise to_mcp_error(error) from None
        _keep_only(agreed, context.sdk_context.params)


def count_kept_bytes(params: Any) -> int:
    """Bytes as JSON of what a session keeps of the params of `initialize`; 0 if they are invalid, and open no session."""
    match params:
        case {"capabilities": dict(), "clientInfo": dict()}:
            return min(len(jsontext.dumps(_select_params(params, ""))), STATE_BYTES_MAX)
        case _:
            return 0


def _keep_only(agreed: Mapping[str, Any], params: Mapping[str, Any] | None) -> None:
    """Change the params in place: the SDK reads them after this, and keeps them as long as the session."""
    received = cast("dict[str, Any]", params)
    received.clear()
    received.update(agreed)


def _select_params(params: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The params with which `initialize` is repeated in another process, so that it agrees on the same."""
    client_info: Mapping[str, Any] = params["clientInfo"]
    return {
        "protocolVersion": version,
        "capabilities": params["capabilities"],
        "clientInfo": {key: client_info[key] for key in _CLIENT_INFO_KEYS if key in client_info},
    }
