"""Authenticates and authorizes requests at the MCP endpoints.

The SDK's bearer middleware is not used: it cannot answer 404 for a hidden upstream or send problem documents, and REST must
decide alike about the same token. The SDK still gets the caller's identity, because it restricts a session to its owner:
another caller's session looks unknown. The token itself stays in this module.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from ringback.domain import principal
from ringback.domain.principal import Authenticator, Caller
from ringback.domain.protected_resource import parse_bearer_token, resource_for_path
from ringback.mcp_server.builtin_tools.login_tool import LOGIN_TOOL_NAME
from ringback.mcp_server.builtin_tools.notify_me import NOTIFY_ME_TOOL_NAME
from ringback.mcp_server.builtin_tools.tool_schemas import BuiltinToolName
from ringback.mcp_server.incoming_messages import read_message, require_media_types
from ringback.protocol.builtin_tools import is_builtin_tool
from ringback.protocol.cancel_keys import CANCEL_REQUEST_METHOD
from ringback.services.limits.body_admission import BodyAdmission

_CALLER_KEY: Final = "ringback.caller"
"""The caller's key in the ASGI scope's state."""

_METHOD_SCOPES: Final = {
    "tools/call": principal.Scope.CALLS,
    "tasks/update": principal.Scope.CALLS,
    "tasks/cancel": principal.Scope.CALLS,
    CANCEL_REQUEST_METHOD: principal.Scope.CALLS,
    "events/subscribe": principal.Scope.WEBHOOKS,
    "events/unsubscribe": principal.Scope.WEBHOOKS,
}
"""The scope that a method requires; all other methods require `read`."""
_TOOL_SCOPES: Final[Mapping[str, principal.Scope]] = {
    BuiltinToolName.CANCEL_CALL: principal.Scope.CALLS,
    BuiltinToolName.ANSWER_CALL: principal.Scope.CALLS,
    LOGIN_TOOL_NAME: principal.Scope.CALLS,
    NOTIFY_ME_TOOL_NAME: principal.Scope.WEBHOOKS,
}
"""The scope that a built-in tool requires; all other built-in tools require `read`."""
_ALL_SCOPES: Final = frozenset({principal.Scope.READ, *_METHOD_SCOPES.values()})
_UNSCOPED_METHODS: Final = frozenset({"initialize", "server/discover", "ping"})
"""These return no data of a principal."""


async def authenticate_request(scope: Scope, authenticator: Authenticator) -> Caller:
    """Authenticate, and store the caller in the ASGI scope for the SDK and the handlers; raises `Unauthenticated`."""
    bearer = parse_bearer_token(Headers(scope=scope).get("authorization"))
    authenticated = await authenticator.authenticate(bearer, resource=resource_for_path(scope["path"]))
    caller = replace(authenticated, surface=principal.Surface.MCP)
    scope.setdefault("state", {})[_CALLER_KEY] = caller
    scope["user"] = AuthenticatedUser(_build_session_owner(caller))
    return caller


def _build_session_owner(caller: Caller) -> AccessToken:
    """The owner of a session: principal and upstreams. It contains no token."""
    upstreams = None if caller.upstreams is None else ",".join(sorted(caller.upstreams))
    return AccessToken(token="", client_id=caller.principal, subject=upstreams, scopes=[])


def get_request_caller(scope: Scope) -> Caller:
    """The caller that `authenticate_request` stored in this ASGI scope."""
    caller: Caller = scope["state"][_CALLER_KEY]
    return caller


def get_caller(sdk_context: ServerRequestContext[Any, Any]) -> Caller:
    """The caller that `authenticate_request` stored for this request."""
    request = sdk_context.request
    if request is None:
        raise MCPError(METHOD_NOT_FOUND, "This server is reached over HTTP only.")
    return get_request_caller(request.scope)


async def authorize_request(
    caller: Caller, scope: Scope, receive: Receive, *, body_admission: BodyAdmission
) -> Receive:
    """Read the message, check the scope, and return the `receive` that replays the body.

    Raises `MalformedMessage`, `Forbidden`, and what `BodyAdmission.admit_body` raises.

    The body is always read here: the SDK logs an error when a client disconnects while it sends the body. Here that raises
    `ClientDisconnect`, which is no error.

    Services check scopes too, but then the error is a JSON-RPC error on a started stream. An OAuth client learns the missing
    scope only from status 403 and its header (MCP 2026-07-28, Authorization, Scope Challenge Handling).
    """
    has_all_scopes = caller.scopes >= _ALL_SCOPES or principal.Scope.ADMIN in caller.scopes
    if scope["method"] == "GET" and not has_all_scopes:
        caller.require_scope(principal.Scope.READ)
    if scope["method"] != "POST":
        return receive
    require_media_types(scope)
    body = await Request(scope, receive).body()
    await body_admission.admit_body(caller.principal, body)
    message = read_message(body, scope)
    if not has_all_scopes:
        _require_scope(caller, message)
    return _create_body_receive(body, receive)


def _require_scope(caller: Caller, message: Mapping[str, Any]) -> None:
    match message:
        case {"id": _, "method": "tools/call", "params": {"name": str() as name}} if is_builtin_tool(name):
            _require_tool_scope(caller, name)
        case {"id": _, "method": str() as method} if method not in _UNSCOPED_METHODS:
            caller.require_scope(_METHOD_SCOPES.get(method, principal.Scope.READ))
        case _:
            pass


def _require_tool_scope(caller: Caller, name: str) -> None:
    """A caller with `read` passes: the tool itself says which scope it requires, in a result that a model reads."""
    if not caller.has_scope(principal.Scope.READ):
        caller.require_scope(_TOOL_SCOPES.get(name, principal.Scope.READ))


def _create_body_receive(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
