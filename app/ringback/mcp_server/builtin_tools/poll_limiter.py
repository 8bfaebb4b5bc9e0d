"""Advises a model that polls a call which does not change.

A poll costs the model a turn and its user money, and does not make the call faster. So unchanged polls are counted for each
principal and call; after a few of them the response says to end the turn, or to wait longer with each poll. Waits stay as long
as they were asked for: most servers report no progress, and a client that waits again, as advised, must not get each response
at once. Each node counts the polls that reach it.
"""

from collections import OrderedDict
from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal

UNCHANGED_POLLS_MAX: Final = 10
"""Polls that may find no change. With the default wait of 4 s that is most of a minute, in which most slow tools end."""
TRACKED_CALLS_MAX: Final = 10_000
"""Calls tracked at once, about 3 MB. The one polled longest ago is dropped first, and its count starts again."""


_CallState = tuple[Any, ...]


class PollLimiter:
    """Counts the polls of each call since its last change."""

    def __init__(
        self, *, unchanged_polls_max: int = UNCHANGED_POLLS_MAX, tracked_calls_max: int = TRACKED_CALLS_MAX
    ) -> None:
        self._unchanged_polls_max = unchanged_polls_max
        self._tracked_calls_max = tracked_calls_max
        self._polls: OrderedDict[tuple[Principal, CallId], tuple[_CallState, int]] = OrderedDict()

    def poll_limit_reached(self, principal: Principal, call: Call) -> bool:
        """Whether the client has polled this status too often; the response then advises it."""
        last_state, polls = self._polls.get((principal, call.id), (None, 0))
        return last_state == _read_call_state(call) and polls >= self._unchanged_polls_max

    def record_poll(self, principal: Principal, call: Call) -> None:
        """Count a poll of the call in this state; an ended call is not counted."""
        key = (principal, call.id)
        last_state, polls = self._polls.pop(key, (None, 0))
        if call.is_final:
            return
        state = _read_call_state(call)
        self._polls[key] = (state, polls + 1 if last_state == state else 1)
        if len(self._polls) > self._tracked_calls_max:
            self._polls.popitem(last=False)


def _read_call_state(call: Call) -> _CallState:
    return call.status, call.progress, call.input_round, len(call.input_requests), call.cancel_requested
