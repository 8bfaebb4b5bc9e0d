"""What a driver is: it carries one call over a session to its end, and says truthfully how it ended.

A driver is made once and drives many calls at once, so it holds no state: what it must know again after this process has died
goes into its handle, and `Desk.keep` makes it durable before the driver waits for anything.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain.call import Call, CallCompletion, Handle, Progress
from ringback.domain.upstreams import ToolInfo


class LeaseLost(Exception):
    """The call is somebody else's now, or may be: whoever drives it here stops, and writes nothing."""


# -- what a driver is given: the upstream ------------------------------------------------------------------------------------


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


# -- what a driver is given: its call ----------------------------------------------------------------------------------------


class CallContext(Protocol):
    """What a driver may do to its call.

    Every write is durable when it returns and checks the lease; it raises `LeaseLost` when that has gone. While the store
    cannot be written it waits, as long as the lease is trusted.
    """

    @property
    def call(self) -> Call:
        """The call as this desk wrote or read it last."""
        ...

    async def report_progress(self, progress: Progress) -> None:
        """Take the newest progress; it is stored now and then, and never fails."""
        ...

    async def save_handle(self, handle: Handle | None) -> None:
        """Keep what finds the call again. None: from here on it could not be found again, until the next handle."""
        ...

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Everything that the upstream wants to know now, by its own keys: `{method, params}` each.

        New requests make the call `input_required` and ring; those that are not among them any more are withdrawn; with
        nothing left the call is `working` again. Those with an answer that was not yet passed on do not count as new.
        Raises `ValueError` when there is more than is kept, or something that was never offered to be asked.
        """
        ...

    async def wait_for_answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        """Answers to pass on, by the upstream's keys. Waits for one; empty when the time ran out, or at a cancellation."""
        ...

    async def mark_answers_sent(self, keys: Collection[str]) -> None:
        """These answers have arrived upstream; the call forgets them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedCall:
    """The upstream waits for answers without holding anything open: nobody needs to drive the call until they are there."""

    handle: Handle
    input_requests: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """As in `Desk.ask`."""


# -- the driver --------------------------------------------------------------------------------------------------------------


class Driver(Protocol):
    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        """Carry `desk.call` to its end: from its handle if it has one, else from its beginning.

        Being cancelled means that this process stops driving. With a handle kept, the upstream must not notice; without one,
        the request in flight is abandoned, which tells the upstream to stop. May raise `NotSent` when it has a handle: it
        is run again once the upstream is there.
        """
        ...

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion | None:
        """Tell the upstream to stop, while `run` goes on. May be repeated; raises `RequestFailed` when it cannot be told.

        The ending, if the call ends by that: then `run` is cancelled. None if the upstream will tell by itself how the call
        ended, which may be a result: then `run` goes on, and its `answers` return at once to have it look.
        """
        ...


class BoundDriverPort(Protocol):
    """A live session with the driver that suits the call: what the runner needs."""

    async def run_call(self, context: CallContext) -> CallCompletion | ParkedCall: ...

    async def cancel_call(self, call: Call) -> CallCompletion | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDriver:
    session: CallSessionPort
    driver: Driver

    async def run_call(self, context: CallContext) -> CallCompletion | ParkedCall:
        return await self.driver.run_call(self.session, context)

    async def cancel_call(self, call: Call) -> CallCompletion | None:
        return await self.driver.cancel_call(self.session, call)
