"""Legacy MCP sessions as the store keeps them, and the port of the store for them.

A session is stored when `initialize` succeeds, and removed when its client ends it or when it was idle for too long. Any
process continues a stored session from `SessionState`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NewType, Protocol

from ringback.domain.principal import Principal

McpSessionId = NewType("McpSessionId", str)

STATE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a session's state as JSON. An `initialize` has some 500 bytes, and `SUBSCRIPTIONS_MAX` usual URIs have 25 KB."""
SUBSCRIPTIONS_MAX: Final = 256
"""Resources that one session is subscribed to; a client with more has a bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What the client and Ringback agreed on."""

    initialize: Mapping[str, Any] = field(repr=False)
    """The params of `initialize`, with the protocol version that was negotiated."""
    log_level: str | None = None
    subscriptions: tuple[str, ...] = ()
    """URIs of the resources that the client is subscribed to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSession:
    id: McpSessionId
    principal: Principal
    upstreams: frozenset[str] | None
    """The upstreams that the caller may use; None means all. Only a caller with the same restriction continues the session."""
    endpoint: str
    """The path: `/mcp` or `/mcp/{upstream}`."""
    state: SessionState
    created_at: datetime
    expires_at: datetime


class McpSessionRows(Protocol):
    async def save(self, session: McpSession) -> None:
        """Insert the session. If the id exists, replace its state and its expiry."""
        ...

    async def get(self, session_id: McpSessionId, *, now: datetime) -> McpSession | None:
        """The session; None if it is unknown or has expired, or if no key of the ring unseals its state.

        In a write transaction its row is locked until the end of the transaction.
        """
        ...

    async def count(self, principal: Principal, endpoint: str, *, now: datetime, limit: int) -> int:
        """The principal's sessions at this endpoint that have not expired, counted up to `limit`."""
        ...

    async def list_expiries(
        self, principal: Principal, endpoint: str, *, now: datetime, limit: int
    ) -> Mapping[McpSessionId, datetime]:
        """When the sessions of the principal at this endpoint expire, earliest first, without those that have expired."""
        ...

    async def save_state(self, session: McpSession) -> None: ...

    async def extend(
        self, session_ids: Collection[McpSessionId], *, expires_at: datetime, now: datetime
    ) -> Collection[McpSessionId]:
        """Move the expiry of these sessions forward, never back. Return the ids of those that exist and have not expired."""
        ...

    async def delete(self, session_id: McpSessionId) -> bool: ...

    async def remove_expired(self, *, now: datetime, limit: int) -> int: ...
