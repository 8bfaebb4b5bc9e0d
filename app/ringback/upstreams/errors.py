"""The errors of upstreams. The class of a failed request says whether the tool may have run.

UpstreamUnreachable          no session became available within the connect timeout
└── UpstreamNotConfigured    the configuration does not name the upstream (any more)

RequestFailed
├── RequestNotSent           the tool has not run; the request may be sent again: no byte of it went out
│   ├── SessionNotFound      … or the upstream rejected it unread, because it does not know the session
│   ├── CredentialsRejected  … or the upstream, or its authorization server, rejected our credentials
│   ├── CredentialsRequired  … or the upstream requires credentials and none are configured
│   └── TokenUnavailable     … or the authorization server returned no access token
├── ResponseLost             the tool may have run: bytes may have gone out and no response arrived
│   └── SessionGone          … and the response cannot be fetched later: its session has ended
├── InvalidUpstreamResponse  the upstream sent a response that is no MCP response
└── UpstreamError            the upstream sent a JSON-RPC error
"""

from typing import Any


class UpstreamUnreachable(Exception):
    """The upstream had no session for the whole connect timeout; the message says how it failed last."""


class UpstreamNotConfigured(UpstreamUnreachable):
    """The configuration has no upstream of this name now. A reload can add it."""


class RequestFailed(Exception):
    """A request has no result. The message contains no text of the upstream, so a caller may read it."""


class RequestNotSent(RequestFailed):
    pass


class SessionNotFound(RequestNotSent):
    pass


class CredentialsRejected(RequestNotSent):
    pass


class CredentialsRequired(RequestNotSent):
    pass


class TokenUnavailable(RequestNotSent):
    pass


class ResponseLost(RequestFailed):
    pass


class SessionGone(ResponseLost):
    pass


class InvalidUpstreamResponse(RequestFailed):
    pass


class UpstreamError(RequestFailed):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__("The upstream answered with an error.")
        self.error = error
        """The JSON-RPC error object, unchanged."""
