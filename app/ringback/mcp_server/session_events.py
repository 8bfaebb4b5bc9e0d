"""The events of one legacy session: their ids, and the notifications that its own stream has not carried yet.

request streams     get ids only; `event_ids` says how their responses are found again
standalone stream   keeps its last notifications in memory, because a client may be away for a moment. A newer one replaces
                    an older one about the same resource or task. After a restart, the log is empty, and the replayed
                    subscriptions report that everything may have changed
"""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage, JSONRPCNotification

from ringback.domain import jsontext
from ringback.mcp_server.event_ids import EventIds, StandaloneStream, StreamRequest

LOG_ENTRIES_MAX: Final = 256
"""Notifications kept for one session: as many as it has subscriptions."""
LOG_MESSAGE_BYTES_MAX: Final = 4 * 1024
"""Params of a notification that is kept. Together a session keeps at most 1 MB, and usually nothing."""
_SUBJECT_KEYS: Final = ("uri", "taskId", "progressToken")


@dataclass(slots=True)
class _LogEntry:
    number: int
    message: JSONRPCMessage
    is_sent: bool


class SessionEventStore(EventStore):
    """`is_stream_open` says whether the session's own stream is open now."""

    def __init__(self, event_ids: EventIds, *, log_id: str, is_stream_open: Callable[[], bool]) -> None:
        self._is_stream_open = is_stream_open
        self._event_ids = event_ids
        self._log_id = log_id
        self._log_prefix = event_ids.seal_standalone(StandaloneStream(log_id))
        self._log: OrderedDict[tuple[Any, ...], _LogEntry] = OrderedDict()
        self._prefixes: dict[str, str] = {}
        self._last_number = 0

    @contextmanager
    def open_stream(self, stream_id: str, request: StreamRequest) -> Generator[None]:
        """Give ids to the events of this stream until the context ends. Later events reach no client and get none."""
        self._prefixes[stream_id] = prefix = self._event_ids.seal_request(request)
        try:
            yield
        finally:
            if self._prefixes.get(stream_id) is prefix:
                del self._prefixes[stream_id]

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._last_number += 1
        if stream_id != GET_STREAM_KEY:
            prefix = self._prefixes.get(stream_id)
            return f"{prefix}.{self._last_number}" if prefix else ""
        if isinstance(message, JSONRPCNotification):
            self._log_notification(message)
        return f"{self._log_prefix}.{self._last_number}"

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str:
        """Send the notifications after this event. The transport asks only for the session's own stream."""
        position = self._event_ids.parse(last_event_id)
        is_this_log = isinstance(position.stream, StandaloneStream) and position.stream.log_id == self._log_id
        last_number = position.number if is_this_log else 0
        for entry in [each for each in self._log.values() if each.number > last_number]:
            await send_callback(EventMessage(entry.message, f"{self._log_prefix}.{entry.number}"))
            entry.is_sent = True
        return GET_STREAM_KEY

    def find_unsent_position(self) -> str | None:
        """The id after which a stream must begin, so that it carries what no stream has carried; None if there is nothing."""
        unsent = [entry.number for entry in self._log.values() if not entry.is_sent]
        return f"{self._log_prefix}.{min(unsent) - 1}" if unsent else None

    def _log_notification(self, message: JSONRPCNotification) -> None:
        params = message.params or {}
        if len(jsontext.dumps(params)) > LOG_MESSAGE_BYTES_MAX:
            return
        subject = (message.method, *(params.get(key) for key in _SUBJECT_KEYS))
        self._log.pop(subject, None)
        self._log[subject] = _LogEntry(self._last_number, message, is_sent=self._is_stream_open())
        if len(self._log) > LOG_ENTRIES_MAX:
            self._log.popitem(last=False)
