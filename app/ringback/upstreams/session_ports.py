"""What drivers and task adoption see of a session with an upstream. Tests implement these Protocols with scripted sessions."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Protocol

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain.call import ServerFingerprint
from ringback.domain.upstreams import ToolInfo
from ringback.protocol.sessions import LegacySessionId, NegotiatedProtocol, OnStreamPosition, StreamPosition

ELICITATION_CAPABILITY: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
"""Declared for a client that accepts input. Sampling and roots are not declared: Ringback has no model and no disk to offer."""


class NotificationStreamPort(Protocol):
    """The notifications of a stream that a request opened."""

    async def next_notification(self) -> Mapping[str, Any] | None:
        """Wait for the parameters of the next notification; None after the end of the stream."""
        ...


OnElicitation = Callable[[str, Mapping[str, Any] | None], None]
"""Called with the id of an elicitation and its `{method, params}`, or None when the upstream withdraws it.

Raises `MCPError` to refuse the elicitation: the upstream gets this error.
"""


class LegacySessionPort(Protocol):
    """A legacy session for drivers that return to it. Requests here never go to another session."""

    @property
    def session_id(self) -> LegacySessionId | None:
        """None if the session cannot be rejoined: on a pipe, or with a server without sessions."""
        ...

    @property
    def retry_seconds(self) -> float:
        """How long to wait before a stream is read on, as the upstream has said last; 0 if it has not."""
        ...

    def keep_alive(self) -> AbstractContextManager[None]:
        """Do not end the session at the upstream, because a driver will rejoin it.

        That holds after an exception in the block, too, unless the exception is the upstream's response to the request.
        """
        ...

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Like `CallSessionPort.send_request`, but cancelling it sends no cancellation: these requests only query a status."""
        ...

    async def resume_stream(
        self, position: StreamPosition, *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Read the response to an earlier request; raises `ResponseLost` if a retry can help, else `SessionGone`.

        Only for a rejoined session. Cancelling it sends no cancellation.
        """
        ...

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification and wait until it has arrived; raises `RequestFailed`."""
        ...

    def handle_elicitations(self, on_elicitation: OnElicitation) -> AbstractContextManager[None]:
        """Pass the elicitations of the requests made in this block to the callback (`elicitation_router`).

        Elicitations that are open at the end of the block stay unanswered.
        """
        ...

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any]) -> None:
        """Answer an elicitation that `handle_elicitations` of this task got, and wait until the answer has arrived.

        In a rejoined session also one of an earlier connection. Raises `RequestFailed`.
        """
        ...


class CallSessionPort(Protocol):
    """The session as a driver sees it."""

    @property
    def protocol(self) -> NegotiatedProtocol: ...

    @property
    def server_fingerprint(self) -> ServerFingerprint | None:
        """Of the server that the requests go to; handles that are saved in this session belong to it."""
        ...

    def get_tool(self, name: str) -> ToolInfo | None:
        """The tool as the upstream listed it; None if it did not."""
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
        """Return the raw result; raises `RequestFailed`. Cancelling it sends a cancellation, unless `on_position` was called.

        `client_capabilities` are declared for this request (modern only; legacy declares them in the handshake).
        `on_position` (legacy only) gets each position from which the response can be read if the connection is lost.
        """
        ...

    def open_notification_stream(
        self, notification_filter: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[NotificationStreamPort | None]:
        """Open a `subscriptions/listen` stream with this filter; None if the upstream does not support all of it.

        A legacy upstream sends notifications for `taskIds` without a request, and they are only hints.
        """
        ...

    @property
    def legacy_session(self) -> LegacySessionPort:
        """The session that the last request went to (legacy only)."""
        ...

    def rejoin_session(self, session_id: LegacySessionId) -> AbstractAsyncContextManager[LegacySessionPort]:
        """Rejoin a session that any process has opened, over a connection of its own."""
        ...


PredictDriverName = Callable[[CallSessionPort, Iterable[str]], str]
"""Names the driver of a call that starts now, from a session and the names of its tools (`runner.drivers.selection`)."""
