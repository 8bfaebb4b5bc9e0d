"""Calls whose client waits for the result in this process. The end of such a call reaches the client without a query.

    start_call, as its transaction commits ──▶ expect_end         a runner of this process runs the call
    CompletionBatcher, before that transaction ──▶ note_outcome   the upstream has responded; the client gets that very soon
    Recorder, as the transaction that ends the call commits ──▶ publish_end
    wait_for_call, at its notification ──▶ find_end               the call and its result, still in memory

Whatever is not here is read from the store: a call that another process runs, a large result, an entry that was dropped. An end
never changes, so what is here is as true as the row.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ringback.domain.call import Call
from ringback.domain.ids import CallId

CALLS_MAX: Final = 4096
"""Beyond this the oldest entries are dropped: their clients have left, or read from the store."""
RESULT_BYTES_MAX: Final = 64 * 1024
"""Reading a larger result costs little compared with sending it."""
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""For all results together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """A call that has ended, as it was committed."""

    call: Call
    result: bytes | None
    has_deliveries: bool
    """Whether there may be deliveries of the call. False is certain."""


@dataclass(slots=True)
class _AttendedCall:
    inserted: Call | None
    """The call as its client knows it from the start; None once the client waits."""
    end: CallEnd | None = None
    has_outcome: bool = False


class AttendedCalls:
    def __init__(self) -> None:
        self._calls: OrderedDict[CallId, _AttendedCall] = OrderedDict()
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._calls)

    def expect_end(self, call: Call) -> None:
        """Keep the end of this new call. A runner of this process has its lease."""
        self._calls[call.id] = _AttendedCall(call)
        if len(self._calls) > CALLS_MAX:
            self.forget_call(next(iter(self._calls)))

    def note_outcome(self, call_id: CallId) -> None:
        """The outcome of the call is known, and the transaction that ends it follows."""
        if (attended := self._calls.get(call_id)) is not None:
            attended.has_outcome = True

    def has_outcome(self, call_id: CallId) -> bool:
        attended = self._calls.get(call_id)
        return attended is not None and attended.has_outcome

    def publish_end(self, end: CallEnd) -> None:
        """Keep the end of an expected call, unless its result is too large."""
        attended, size = self._calls.get(end.call.id), len(end.result or b"")
        if attended is None or attended.end is not None:
            return
        if size <= RESULT_BYTES_MAX and self._kept_bytes + size <= KEPT_BYTES_MAX:
            self._kept_bytes += size
            attended.end = end
        else:
            del self._calls[end.call.id]

    def is_first_wait(self, call: Call) -> bool:
        """True once, for the object that `expect_end` got: its client knows the row until a notification comes."""
        attended = self._calls.get(call.id)
        if attended is None or attended.end is not None or attended.inserted is not call:
            return False
        attended.inserted = None
        return True

    def find_end(self, call_id: CallId) -> CallEnd | None:
        attended = self._calls.get(call_id)
        return None if attended is None else attended.end

    def forget_call(self, call_id: CallId) -> CallEnd | None:
        """Drop the call. Returns its end, if it is here."""
        attended = self._calls.pop(call_id, None)
        if attended is None or attended.end is None:
            return None
        self._kept_bytes -= len(attended.end.result or b"")
        return attended.end
