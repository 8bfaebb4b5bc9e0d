"""The errors of a request to an MCP server. The class says whether the tool may have run.

RequestFailed
├── RequestNotSent           the tool has not run; the request may be sent again: no byte of it went out
│   ├── TlsFailed            … because of TLS: the certificate is not accepted, or the server speaks no TLS
│   ├── SessionNotFound      … or the upstream rejected it unread, because it does not know the session
│   ├── CredentialsRejected  … or the upstream, or its authorization server, rejected our credentials
│   │   └── ScopeRefused     … or our credentials lack a right that this request needs, and no login gets it
│   ├── CredentialsRequired  … or the upstream requires credentials and none are configured
│   ├── LoginRequired        … or the upstream requires a login of the owner of the call's credentials
│   │   └── TokensUnreadable … or the owner has signed in, and this node lacks the key that sealed the tokens
│   └── TokenUnavailable     … or the authorization server returned no access token
│       └── TokenReplaced    … or another request has replaced the access token meanwhile: this one may be sent again at once
├── ResponseLost             the tool may have run: bytes may have gone out and no response arrived
│   └── SessionGone          … and the response cannot be fetched later: its session has ended
├── InvalidUpstreamResponse  the upstream sent a response that is no MCP response
│   ├── UpstreamServerError  … but a status that says that it has failed (500 and above)
│   └── UpstreamUnavailable  … but a status that says that it, or a proxy before it, cannot respond now (429, 502, 503, 504)
└── UpstreamError            the upstream sent a JSON-RPC error
"""

from collections.abc import Mapping
from typing import Any


class RequestFailed(Exception):
    """A request has no result. The message contains no text of the upstream, so a caller may read it."""


class RequestNotSent(RequestFailed):
    pass


class TlsFailed(RequestNotSent):
    pass


class SessionNotFound(RequestNotSent):
    pass


class CredentialsRejected(RequestNotSent):
    pass


class ScopeRefused(CredentialsRejected):
    pass


class CredentialsRequired(RequestNotSent):
    pass


class LoginRequired(RequestNotSent):
    def __init__(self, message: str, *, scope: str | None = None, tokens_version: int | None = None) -> None:
        super().__init__(message)
        self.scope = scope
        """The scope that the upstream asks for (RFC 6750 §3); None if it does not say."""
        self.tokens_version = tokens_version
        """The version of the stored tokens that do not suffice (`UpstreamTokens.version`); None if there were none."""


class TokensUnreadable(LoginRequired):
    """It needs no sign-in: a node with the key sends the request."""


class TokenUnavailable(RequestNotSent):
    pass


class TokenReplaced(TokenUnavailable):
    pass


class ResponseLost(RequestFailed):
    pass


class SessionGone(ResponseLost):
    pass


class InvalidUpstreamResponse(RequestFailed):
    pass


class UpstreamServerError(InvalidUpstreamResponse):
    pass


class UpstreamUnavailable(InvalidUpstreamResponse):
    pass


class UpstreamError(RequestFailed):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__("The upstream answered with an error.")
        self.error = error
        """The JSON-RPC error object, unchanged."""


def is_jsonrpc_error(error: Mapping[str, Any]) -> bool:
    """Whether it has what every reader relies on. That of a response has been checked; that of a task is any object."""
    code = error.get("code")
    return isinstance(code, int) and not isinstance(code, bool) and isinstance(error.get("message"), str)
