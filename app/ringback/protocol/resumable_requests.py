"""Requests of a legacy session whose response another connection, also of another process, can read.

    tools/call ──▶ event id ──▶ StreamPosition …connection or process lost… GET, Last-Event-ID ──▶ the response

A server that stores events gives its first event an id, before any progress (2025-11-25). The options here are those of the
SDK's dispatcher. With them it sends no cancellation when the request is abandoned.
"""

from typing import Final

from mcp.shared.dispatcher import CallOptions

from ringback.protocol.sessions import LegacySessionId, OnStreamPosition, StreamPosition

EVENT_ID_LENGTH_MAX: Final = 1024
"""An event id is a number, or a UUID with the id of its stream. A longer one is ignored; reading resumes after the last one."""
RESUME_SECONDS_FIRST: Final = 2.0
RESUME_SECONDS_MAX: Final = 60.0
"""The pause before a resume doubles between these. A server may need a moment to notice that the old stream is gone."""
READ_SECONDS_FIRST: Final = 5.0
READ_SECONDS_MAX: Final = 300.0
"""A resumed stream is closed and resumed again after this time, which doubles. A response between a server's replay
and its live events is lost on that stream (SDK 2.3.0), and the next resume from the same position fetches it. That is why a
resume never starts from a later position: the server may have sent an event id after the response."""
SESSION_GONE_SECONDS: Final = 5.0
"""A session counts as gone once the server has said so for this long: a proxy that restarts says 404 for a moment, too, and the
tool runs on behind it."""


class ResumableRequest:
    """A request that is about to be sent. `position` is the last position from which its response can be read."""

    def __init__(self, session: LegacySessionId, request_id: str, on_position: OnStreamPosition) -> None:
        self._session = session
        self._request_id = request_id
        self._on_position = on_position
        self.position: StreamPosition | None = None

    @property
    def options(self) -> CallOptions:
        return {"request_id": self._request_id, "on_resumption_token": self._on_event_id}

    async def _on_event_id(self, event_id: str) -> None:
        if _is_sendable(event_id):
            self.position = StreamPosition(session=self._session, request_id=self._request_id, event_id=event_id)
            self._on_position(self.position)


def _is_sendable(event_id: str) -> bool:
    """Whether a header can carry the id unchanged. With another one, each resume would end its session."""
    is_plain = event_id.isascii() and event_id.isprintable() and event_id == event_id.strip()
    return is_plain and len(event_id) <= EVENT_ID_LENGTH_MAX


def resume_options(position: StreamPosition) -> CallOptions:
    """The options of a request, in a rejoined session, that reads the response to the earlier request.

    Positions are not updated while resuming. An event id of a resumed stream may be later than a response that the server
    stored and did not send: the SDK's server sends one after its replay, and events in between are on no stream.
    """
    return {"request_id": position.request_id, "resumption_token": position.event_id}
