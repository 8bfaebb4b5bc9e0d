"""Who is asking at the MCP endpoints, and whether they may ask that.

The SDK's own bearer middleware is not used: it knows no 404 for what is not to be seen and no problem documents, and REST must
come to the same answer about the same token. It is told who asks, though, because it lets only those who opened a session use
it: a session of somebody else is answered as one that does not exist. The token itself goes no further than this module.
"""

from collections.abc import Mapping
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from ringback.domain import jsontext, principal
from ringback.domain.principal import Authenticator, Caller
from ringback.domain.protected_resource import parse_bearer_token, resource_for_path

_CALLER_KEY: Final = "ringback.caller"
"""Where the ASGI scope's state keeps who is asking."""

_METHOD_SCOPES: Final = {
    "tools/call": principal.Scope.CALLS,
    "tasks/update": principal.Scope.CALLS,
    "tasks/cancel": principal.Scope.CALLS,
    "events/subscribe": principal.Scope.WEBHOOKS,
    "events/unsubscribe": principal.Scope.WEBHOOKS,
}
"""What a method takes; any other takes `read`."""
_ALL_SCOPES: Final = frozenset({principal.Scope.READ, *_METHOD_SCOPES.values()})
_UNSCOPED_METHODS: Final = frozenset({"initialize", "server/discover", "ping"})
"""They tell nothing that belongs to anybody."""
_BUILTIN_TOOL_PREFIX: Final = "ringback_"
"""Our own tools ask for the scope of what they do, when they do it."""


async def authenticate_request(scope: Scope, authenticator: Authenticator) -> Caller:
    """The caller, noted in the scope for the SDK and for our handlers; raises `Unauthenticated`."""
    bearer = parse_bearer_token(Headers(scope=scope).get("authorization"))
    caller = await authenticator.authenticate(bearer, resource=resource_for_path(scope["path"]))
    scope.setdefault("state", {})[_CALLER_KEY] = caller
    scope["user"] = AuthenticatedUser(_build_session_owner(caller))
    return caller


def _build_session_owner(caller: Caller) -> AccessToken:
    """What a session is bound to: whose it is, and what it may tell of. There is no token in it."""
    upstreams = None if caller.upstreams is None else ",".join(sorted(caller.upstreams))
    return AccessToken(token="", client_id=caller.principal, subject=upstreams, scopes=[])


def get_caller(sdk_context: ServerRequestContext[Any, Any]) -> Caller:
    """Who asks, as `admit` has found out for this very request."""
    request = sdk_context.request
    if request is None:
        raise MCPError(METHOD_NOT_FOUND, "This server is reached over HTTP only.")
    caller: Caller = request.scope["state"][_CALLER_KEY]
    return caller


async def authorize_request(caller: Caller, scope: Scope, receive: Receive) -> Receive:
    """What to receive the request's body from, once it asks for nothing that the caller may not do; raises `Forbidden`.

    The body is read here for everybody: the SDK logs a client that vanishes before it was sent whole as an error of its own.
    Here that raises `ClientDisconnect`, which is no error of anybody's.

    Services judge scopes too, but by then the answer is a JSON-RPC error on a stream that has begun, and an OAuth client learns
    which scope to ask for from status 403 and its header (MCP 2026-07-28, Authorization, Scope Challenge Handling).
    """
    has_all_scopes = caller.scopes >= _ALL_SCOPES or principal.Scope.ADMIN in caller.scopes
    if scope["method"] == "GET" and not has_all_scopes:
        caller.require_scope(principal.Scope.READ)
    if scope["method"] != "POST":
        return receive
    body = await Request(scope, receive).body()
    if not has_all_scopes:
        _require_scope(caller, body)
    return _create_body_receive(body, receive)


def _require_scope(caller: Caller, body: bytes) -> None:
    try:
        message = jsontext.loads(body)
    except ValueError:
        return  # the SDK says what is wrong with it
    match message:
        case {"id": _, "method": str() as method, **rest} if method not in _UNSCOPED_METHODS:
            caller.require_scope(_get_required_scope(method, rest))
        case _:
            pass


def _get_required_scope(method: str, message: Mapping[str, Any]) -> principal.Scope:
    match message:
        case {"params": {"name": str() as name}} if method == "tools/call" and name.startswith(_BUILTIN_TOOL_PREFIX):
            return principal.Scope.READ
        case _:
            return _METHOD_SCOPES.get(method, principal.Scope.READ)


def _create_body_receive(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
