"""The principal of a request: whose events it may see, and who owns its subscriptions."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext

from ringback.domain.principal import PRINCIPAL_LENGTH_MAX

NamePrincipal = Callable[[AccessToken], str]
"""Names the principal of an access token. An author gives one if tokens of several issuers share subjects."""
CLIENT_PREFIX: Final = "client:"
"""Before the client id of a token without a subject, so that no user's name equals a client's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCaller:
    """Who sends a request. `principal` is None without authentication: such a caller sees events for everybody only."""

    principal: str | None


def name_principal(token: AccessToken) -> str:
    """The token's subject; for the token of a client itself, `client:` and the client id."""
    return token.subject or CLIENT_PREFIX + token.client_id


def storable_principal(name: str) -> str:
    """The name, or the digest of one that is too long or not printable for a column of the log."""
    if len(name) <= PRINCIPAL_LENGTH_MAX and name.isprintable():
        return name
    return "sha256:" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def audience_of(principal: str | None) -> str | None:
    """What the log stores of the principal that may see an event: a digest. None for everybody."""
    return None if principal is None else hashlib.sha256(principal.encode()).hexdigest()[:32]


def find_access_token(ctx: ServerRequestContext[Any, Any] | None) -> AccessToken | None:
    """The token of this HTTP request, or else of the current context. None on stdio and without authentication.

    A legacy session outlives the request that opened it, so the request's own token counts first.
    """
    request = None if ctx is None else ctx.request
    user = None if request is None else request.scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return user.access_token
    return get_access_token()
