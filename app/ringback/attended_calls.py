"""Calls whose client waits for the result in this process. The end of such a call reaches the client without a query.

    start_call, as its transaction commits ──▶ expect_end         a runner of this process runs the call
    CompletionBatcher, before that transaction ──▶ note_outcome   the upstream has responded; the client gets that very soon
    Recorder, as the transaction that ends the call commits ──▶ publish_end
    wait_for_call, at its notification ──▶ find_end               the call and its result, still in memory
    AttendedWait, as its request leaves it ──▶ forget_call        also if the call has not ended

Whatever is not here is read from the store: a call that another process runs, a large result, an entry that was dropped. An end
never changes, so what is here is as true as the row.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ringback.domain.call import Call
from ringback.domain.ids import CallId

CALLS_MAX: Final = 4096
"""Beyond this many open calls, and ended ones, the oldest are dropped: their clients have left, or read from the store."""
RESULT_BYTES_MAX: Final = 64 * 1024
"""Reading a larger result costs little compared with sending it."""
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""For all results together. The oldest are dropped: their clients read from the store, if they still wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """A call that has ended, as it was committed."""

    call: Call
    result: bytes | None
    has_deliveries: bool
    """Whether there may be deliveries of the call. False is certain."""


@dataclass(slots=True)
class _ExpectedEnd:
    inserted: Call | None
    """The call as its client knows it from the start; None once the client waits."""
    has_outcome: bool = False


class AttendedCalls:
    def __init__(self) -> None:
        self._expected: OrderedDict[CallId, _ExpectedEnd] = OrderedDict()
        self._ends: OrderedDict[CallId, CallEnd] = OrderedDict()
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._expected) + len(self._ends)

    def expect_end(self, call: Call) -> None:
        """Keep the end of this new call. A runner of this process has its lease."""
        self._expected[call.id] = _ExpectedEnd(call)
        if len(self._expected) > CALLS_MAX:
            self._expected.popitem(last=False)

    def note_outcome(self, call_id: CallId) -> None:
        """The outcome of the call is known, and the transaction that ends it follows."""
        if (expected := self._expected.get(call_id)) is not None:
            expected.has_outcome = True

    def has_outcome(self, call_id: CallId) -> bool:
        expected = self._expected.get(call_id)
        return call_id in self._ends if expected is None else expected.has_outcome

    def publish_end(self, end: CallEnd) -> None:
        """Keep the end of an expected call, unless its result is too large. The oldest ends make room for it."""
        size = _size_of(end)
        if self._expected.pop(end.call.id, None) is None or size > RESULT_BYTES_MAX:
            return
        self._ends[end.call.id] = end
        self._kept_bytes += size
        while self._kept_bytes > KEPT_BYTES_MAX or len(self._ends) > CALLS_MAX:
            self._kept_bytes -= _size_of(self._ends.popitem(last=False)[1])

    def is_first_wait(self, call: Call) -> bool:
        """True once, for the object that `expect_end` got: its client knows the row until a notification comes."""
        expected = self._expected.get(call.id)
        if expected is None or expected.inserted is not call:
            return False
        expected.inserted = None
        return True

    def find_end(self, call_id: CallId) -> CallEnd | None:
        return self._ends.get(call_id)

    def forget_call(self, call_id: CallId) -> None:
        """Drop the call and its end: no client waits for it any more."""
        self._expected.pop(call_id, None)
        if (end := self._ends.pop(call_id, None)) is not None:
            self._kept_bytes -= _size_of(end)


def _size_of(end: CallEnd) -> int:
    return len(end.result or b"")
