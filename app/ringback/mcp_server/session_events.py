"""The events of one legacy session: their ids, and the notifications that its own stream has not carried yet.

request streams     get ids only; `event_ids` says how their responses are found again. The id of a response is marked
own stream (GET)    its last notifications are kept in memory, because a client may be away for a moment. A newer one replaces
an older one about the same resource, task or list. After a restart nothing is kept, and the replayed
subscriptions report that everything may have changed
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCResponse

from ringback.domain import jsontext
from ringback.mcp_server.event_ids import LAST_EVENT_MARK, PROGRESS_MARK, EventIds, OwnStream, StreamRequest

LOG_ENTRIES_MAX: Final = 256
"""Notifications kept for one session: as many as it has subscriptions."""
LOG_MESSAGE_BYTES_MAX: Final = 4 * 1024
"""Params of a notification that is kept. Together a session keeps at most 1 MB, and usually nothing."""
_PROGRESS_METHOD: Final = "notifications/progress"
_SUBJECT_KEYS: Final = ("uri", "taskId", "progressToken")


@dataclass(slots=True)
class LogEntry:
    event: EventMessage
    number: int
    is_sent: bool


@dataclass(slots=True, eq=False)
class _RequestStream:
    id_prefix: str
    progress_sent: float | None

    def create_event_id(self, number: int, message: JSONRPCMessage | None) -> str:
        """The id of its next event."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return f"{self.id_prefix}.{number}{LAST_EVENT_MARK}"
        if isinstance(message, JSONRPCNotification) and message.method == _PROGRESS_METHOD:
            self.progress_sent = (message.params or {}).get("progress")
        mark = "" if self.progress_sent is None else f"{PROGRESS_MARK}{self.progress_sent}"
        return f"{self.id_prefix}.{number}{mark}"


class SessionEventStore(EventStore):
    """`is_own_stream_open` says whether the session's own stream is open now."""

    def __init__(self, event_ids: EventIds, *, log_id: str, is_own_stream_open: Callable[[], bool]) -> None:
        self._event_ids = event_ids
        self._log_id = log_id
        self._log_prefix = event_ids.seal_own_stream(OwnStream(log_id))
        self._log: OrderedDict[tuple[Any, ...], LogEntry] = OrderedDict()
        self._request_streams: dict[str, _RequestStream] = {}
        self._last_number = 0
        self._is_own_stream_open = is_own_stream_open

    @contextmanager
    def open_stream(self, stream_id: str, request: StreamRequest) -> Generator[None]:
        """Give ids to the events of this stream until the context ends. Later events reach no client and get none."""
        opened = _RequestStream(self._event_ids.seal_request(request), request.progress_sent)
        self._request_streams[stream_id] = opened
        try:
            yield
        finally:
            if self._request_streams.get(stream_id) is opened:
                del self._request_streams[stream_id]

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._last_number += 1
        if stream_id != GET_STREAM_KEY:
            stream = self._request_streams.get(stream_id)
            return "" if stream is None else stream.create_event_id(self._last_number, message)
        event_id = self._create_log_id()
        if isinstance(message, JSONRPCNotification):
            self._log_notification(message, event_id)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> None:
        """Never used: `SessionTransport` answers every `Last-Event-ID` itself."""

    def list_unsent(self) -> Sequence[LogEntry]:
        """The notifications that no stream has carried, oldest first."""
        return [entry for entry in self._log.values() if not entry.is_sent]

    def renumber(self, entry: LogEntry) -> EventMessage:
        """The notification with a new id: the ids of a stream increase, so the last one says what its client has received."""
        self._last_number += 1
        entry.number, entry.event = self._last_number, EventMessage(entry.event.message, self._create_log_id())
        return entry.event

    def create_priming_id(self) -> str:
        """The id of the own stream's first event: a client that returns with it lacks what that stream was to carry."""
        return self._create_log_id()

    def send_again_after(self, stream: OwnStream, number: int) -> None:
        """The client has received the stream up to this event. Everything is sent again if another process sent the event."""
        last_number = number if stream.log_id == self._log_id else 0
        for entry in self._log.values():
            entry.is_sent = entry.is_sent and entry.number <= last_number

    def _create_log_id(self) -> str:
        return f"{self._log_prefix}.{self._last_number}"

    def _log_notification(self, message: JSONRPCNotification, event_id: str) -> None:
        params = message.params or {}
        if len(jsontext.dumps(params)) > LOG_MESSAGE_BYTES_MAX:
            return
        subject = (message.method, *(params.get(key) for key in _SUBJECT_KEYS))
        if (replaced := self._log.pop(subject, None)) is not None:
            replaced.is_sent = True  # so that a stream that begins does not send it after the newer one
        is_sent = self._is_own_stream_open()
        self._log[subject] = LogEntry(EventMessage(message, event_id), self._last_number, is_sent)
        if len(self._log) > LOG_ENTRIES_MAX:
            self._log.popitem(last=False)
