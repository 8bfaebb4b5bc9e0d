"""What a session with an upstream offers to those who use it: drivers, adoption, and the tests that stand in for one."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain.upstreams import ToolInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiatedProtocol:
    """What a session and its upstream agreed on: the facts that choose the driver."""

    protocol_version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The upstream's own, in the form of the wire."""

    @property
    def is_modern(self) -> bool:
        """Whether each request stands alone (2026-07-28 and later); before, there was a handshake and a session."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    def has_extension(self, extension: str) -> bool:
        """Whether the upstream offers this extension."""
        return extension in self.capabilities.get("extensions", {})


class NotificationStreamPort(Protocol):
    """What an upstream tells on a stream that was asked for."""

    async def next_notification(self) -> Mapping[str, Any] | None:
        """The next notification's parameters; None once the stream has ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySessionId:
    """What finds a session of before 2026-07-28 again, from any process."""

    session_id: str
    protocol_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Where the answer to a request will be found: after this event, in that session's stream for the request."""

    session: LegacySessionId
    request_id: str | int
    event_id: str


OnStreamPosition = Callable[[StreamPosition], None]
OnElicitation = Callable[[str, Mapping[str, Any] | None], None]
"""A question `{method, params}` of the upstream by its name; None when it does not want to know any more."""


class LegacySessionPort(Protocol):
    """A session of before 2026-07-28, for drivers that come back to it. What is sent here goes to no other session."""

    @property
    def session_id(self) -> LegacySessionId | None:
        """None when nothing finds it again: a child's pipe, or a server without sessions."""
        ...

    def keep_alive(self) -> AbstractContextManager[None]:
        """Keep the session alive at the upstream, also after this was left by an exception: somebody comes back to it."""
        ...

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """As `Session.request`; but cancelling it tells the upstream nothing, because it only asks about what goes on."""
        ...

    async def resume_stream(
        self, position: StreamPosition, *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The answer to a request of before; raises `Lost` while it is worth asking again, `SessionGone` when it is not.

        Only in a session that was rejoined. Cancelling it tells the upstream nothing.
        """
        ...

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification; it has arrived when this returns, else `RequestFailed` is raised."""
        ...

    def handle_elicitations(self, on_elicitation: OnElicitation) -> AbstractContextManager[None]:
        """Hear the upstream's questions. It asks none in a session that is shared: it was not told that it may."""
        ...

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any]) -> None:
        """Answer a question, also one of before; it has arrived when this returns, else `RequestFailed` is raised."""
        ...


class CallSessionPort(Protocol):
    """What drivers need of a connection."""

    @property
    def protocol(self) -> NegotiatedProtocol: ...

    def get_tool(self, name: str) -> ToolInfo | None:
        """The tool as the upstream listed it, if it did."""
        ...

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_position: OnStreamPosition | None = None,
    ) -> dict[str, Any]:
        """The raw result; raises `RequestFailed`. Cancelling it tells the upstream to stop, unless a place was told.

        `declare` holds the client capabilities that this one request declares; 2026-07-28 only, before it there were those of
        the handshake. `on_place` is for sessions of before, and hears where the answer will be found if this one is lost.
        """
        ...

    def open_notification_stream(
        self, notification_filter: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[NotificationStreamPort | None]:
        """A `subscriptions/listen` stream with this filter; None when the upstream does not honour all of it.

        Before 2026-07-28 the upstream tells of `taskIds` unasked, and what it tells is a hint.
        """
        ...

    @property
    def legacy_session(self) -> LegacySessionPort:
        """The very session that the last request went to (before 2026-07-28)."""
        ...

    def rejoin_session(self, session_id: LegacySessionId) -> AbstractAsyncContextManager[LegacySessionPort]:
        """A session that any process has opened and nobody ended, over a connection of its own."""
        ...
