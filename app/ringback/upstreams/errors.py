"""How a request to an upstream fails. The kind says the one thing that matters: may the tool have run?

RequestFailed
├── NotSent        no byte of it went out: it has surely not run, and may be sent again
│   ├── Forgotten  … it went out, and the upstream refused it unread, because it no longer knows the session
│   ├── Unauthorised           … because it does not take our credentials
│   ├── AuthorizationRequired  … because there are none
│   └── NoToken    … it could not be given an access token: nobody who makes them answers
├── Lost           bytes may have gone out, and no answer came back: it may have run
│   └── SessionGone  … and the session that it ran in is gone: nobody will ever know
├── NoAnswer       the upstream answered with something that is no answer
└── Refused        the upstream answered with a JSON-RPC error
"""

from typing import Any


class RequestFailed(Exception):
    """A request has no result; the message may be shown to whoever made the call."""


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
        """The JSON-RPC error object, as it came."""
