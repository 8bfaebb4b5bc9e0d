"""Telling a model that looks again and again, and sees nothing new, to stop.

A look costs the model a turn and its user money, and changes nothing: the call ends when it ends. So looks without a change are
counted, for each principal and call, and after a few of them the answer says to stop and wait to be called back.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ringback.domain.call import Call, Progress, Status
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal

LOOKS_MAX: Final = 5
"""Looks that may find nothing new. With the longest waits that is four minutes: what is not there then, is not there soon."""
WATCHED_MAX: Final = 10_000
"""Calls remembered at once, some 3 MB. Of those, the one that was looked at longest ago is forgotten, and counted anew."""


@dataclass(frozen=True, slots=True)
class _Seen:
    status: Status
    progress: Progress | None
    input_round: int
    open_questions: int
    cancel_requested: bool


def _seen(call: Call) -> _Seen:
    return _Seen(call.status, call.progress, call.input_round, len(call.input_requests), call.cancel_requested)


class Looks:
    """How often each call was looked at since it last changed."""

    def __init__(self, *, looks_max: int = LOOKS_MAX, watched_max: int = WATCHED_MAX) -> None:
        self._looks_max = looks_max
        self._watched_max = watched_max
        self._found: OrderedDict[tuple[Principal, CallId], tuple[_Seen, int]] = OrderedDict()

    def tired(self, principal: Principal, call: Call) -> bool:
        """Whether so many looks have found the call as it is now that another one is not worth waiting for."""
        seen, looks = self._found.get((principal, call.id), (None, 0))
        return seen == _seen(call) and looks >= self._looks_max

    def count(self, principal: Principal, call: Call) -> None:
        """Remember that the call was looked at and found like this; one that has ended is not looked at in vain."""
        key = (principal, call.id)
        before, looks = self._found.pop(key, (None, 0))
        if call.final:
            return
        found = _seen(call)
        self._found[key] = (found, looks + 1 if before == found else 1)
        if len(self._found) > self._watched_max:
            self._found.popitem(last=False)
