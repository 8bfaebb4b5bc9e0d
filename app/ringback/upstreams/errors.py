"""The errors of connections with upstreams. `protocol.errors` has those of requests.

UpstreamUnreachable          no session became available within the connect timeout
├── UpstreamNotConfigured    the configuration does not name the upstream (any more)
├── ConnectionReplaced       the configuration replaced the connection while the request waited
├── ServerChanged            the name has another server now than the one that a call's handle belongs to
└── UpstreamLoginRequired    the upstream opens a session only after a login
    └── UpstreamTokensUnreadable  … whose tokens are stored, and sealed with a key that this node lacks
"""


class UpstreamUnreachable(Exception):
    """The upstream had no session for the whole connect timeout; the message says how it failed last."""


class UpstreamNotConfigured(UpstreamUnreachable):
    """The configuration has no upstream of this name now. A reload can add it."""


class ConnectionReplaced(UpstreamUnreachable):
    """The configuration replaced this connection by another one, or removed its upstream."""


class ServerChanged(UpstreamUnreachable):
    """The upstream has another server now than the one that the call's handle belongs to. The call cannot go on."""


class UpstreamLoginRequired(UpstreamUnreachable):
    """The owner of the connection's credentials has to sign in first. Raised at once, without the connect timeout."""

    def __init__(self, message: str, *, scope: str | None = None, tokens_version: int | None = None) -> None:
        super().__init__(message)
        self.scope = scope
        """The scope that the upstream asks for; None if it does not say."""
        self.tokens_version = tokens_version
        """The version of the stored tokens that do not suffice (`UpstreamTokens.version`); None if there were none."""


class UpstreamTokensUnreadable(UpstreamLoginRequired):
    """The owner has signed in, and only nodes with the key of the tokens can use the login. It needs no sign-in."""
