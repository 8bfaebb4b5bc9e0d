"""The errors of connections with upstreams. `protocol.errors` has those of requests.

UpstreamUnreachable          no session became available within the connect timeout
└── UpstreamNotConfigured    the configuration does not name the upstream (any more)
"""


class UpstreamUnreachable(Exception):
    """The upstream had no session for the whole connect timeout; the message says how it failed last."""


class UpstreamNotConfigured(UpstreamUnreachable):
    """The configuration has no upstream of this name now. A reload can add it."""
