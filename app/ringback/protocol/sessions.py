"""The outcome of negotiation: the protocol of a session and, for a legacy session, the ids that let a process rejoin it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

SESSION_HEADER: Final = "mcp-session-id"
_VERSION_HEADER: Final = "mcp-protocol-version"
HANDSHAKE_METHODS: Final = frozenset({"initialize", "server/discover"})
"""The requests that negotiate the protocol, of both eras."""
PING_METHOD: Final = "ping"
"""Asks whether the other side responds (legacy)."""


def is_in_legacy_session(headers: Mapping[str, str]) -> bool:
    """Whether a request with these headers, in lower case, belongs to a session. Requests of 2026-07-28 have none."""
    return SESSION_HEADER in headers and headers.get(_VERSION_HEADER) not in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiatedProtocol:
    """The negotiated protocol of a session. It decides which driver carries a call."""

    protocol_version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The capabilities of the upstream, in wire form."""

    @property
    def is_modern(self) -> bool:
        """Whether the protocol is 2026-07-28 or later: each request stands alone. Legacy has a handshake and a session."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    def has_extension(self, extension: str) -> bool:
        return extension in self.capabilities.get("extensions", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySessionId:
    """Identifies a legacy session, so that any process can rejoin it."""

    session_id: str
    protocol_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """The position from which a stream delivers the response to a request: after this event of the request's stream."""

    session: LegacySessionId
    request_id: str | int
    event_id: str


OnStreamPosition = Callable[[StreamPosition], None]
