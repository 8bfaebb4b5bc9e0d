"""Telling a model that looks again and again, and sees nothing new, to stop.

A look costs the model a turn and its user money, and changes nothing: the call ends when it ends. So looks without a change are
counted, for each principal and call, and after a few of them the answer says to stop and wait to be called back.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ringback.domain.call import Call, CallStatus, Progress
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal

UNCHANGED_POLLS_MAX: Final = 5
"""Looks that may find nothing new. With the longest waits that is four minutes: what is not there then, is not there soon."""
TRACKED_CALLS_MAX: Final = 10_000
"""Calls remembered at once, some 3 MB. Of those, the one that was looked at longest ago is forgotten, and counted anew."""


@dataclass(frozen=True, slots=True)
class _CallState:
    status: CallStatus
    progress: Progress | None
    input_round: int
    open_questions: int
    cancel_requested: bool


def _read_call_state(call: Call) -> _CallState:
    return _CallState(call.status, call.progress, call.input_round, len(call.input_requests), call.cancel_requested)


class PollLimiter:
    """How often each call was looked at since it last changed."""

    def __init__(
        self, *, unchanged_polls_max: int = UNCHANGED_POLLS_MAX, tracked_calls_max: int = TRACKED_CALLS_MAX
    ) -> None:
        self._unchanged_polls_max = unchanged_polls_max
        self._tracked_calls_max = tracked_calls_max
        self._polls: OrderedDict[tuple[Principal, CallId], tuple[_CallState, int]] = OrderedDict()

    def poll_limit_reached(self, principal: Principal, call: Call) -> bool:
        """Whether so many looks have found the call as it is now that another one is not worth waiting for."""
        last_state, polls = self._polls.get((principal, call.id), (None, 0))
        return last_state == _read_call_state(call) and polls >= self._unchanged_polls_max

    def record_poll(self, principal: Principal, call: Call) -> None:
        """Remember that the call was looked at and found like this; one that has ended is not looked at in vain."""
        key = (principal, call.id)
        last_state, polls = self._polls.pop(key, (None, 0))
        if call.is_final:
            return
        state = _read_call_state(call)
        self._polls[key] = (state, polls + 1 if last_state == state else 1)
        if len(self._polls) > self._tracked_calls_max:
            self._polls.popitem(last=False)
