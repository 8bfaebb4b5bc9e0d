"""The wait for the ends of many calls, a hundred at a time, such as of those that match a filter at one moment."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from ringback.client.models import Call
from ringback.client.problems import Gone, InvalidArgument, NotFound

if TYPE_CHECKING:
    from ringback.client.call_reads import CallReadMethods

JOINED_CALLS_MAX: Final = 100
"""The ids of one `POST /v1/calls/wait`."""
MATCHING_CALLS_MAX: Final = 10_000
"""The calls that one wait reads and keeps."""
ROUND_SECONDS: Final = 15.0
"""How long a wait for a hundred calls lasts before the next hundred are read, and the progress is reported."""


class AwaitedCalls:
    """The calls of one wait. A request that fails changes nothing: the wait continues after a restart, for the same calls."""

    def __init__(self, client: "CallReadMethods", calls: Iterable[Call]) -> None:
        """`calls`: newest first, as they are listed. The oldest end first, so a wait for them shows the progress."""
        self._client = client
        self._calls = {call.id: call for call in calls}
        self._open_ids = [call.id for call in reversed(self._calls.values()) if not call.final]
        self.erased_ids: list[str] = []
        """Calls that were erased during the wait."""

    @property
    def calls(self) -> Sequence[Call]:
        """The calls as they were last read, in the given order, without those that were erased."""
        return tuple(self._calls.values())

    @property
    def all_ended(self) -> bool:
        return not self._open_ids

    @property
    def any_ended(self) -> bool:
        """Also if none is left to wait for, because all were erased."""
        return self.all_ended or any(call.final for call in self._calls.values())

    async def wait_round(self, timeout_seconds: float, *, for_any: bool = False) -> None:
        """Wait for all, or for one, of the next hundred open calls, at most `ROUND_SECONDS`."""
        ids, rest = self._open_ids[:JOINED_CALLS_MAX], self._open_ids[JOINED_CALLS_MAX:]
        seconds = max(0.0, min(ROUND_SECONDS, timeout_seconds))
        wait = self._client.wait_any if for_any else self._client.wait_all
        try:
            joined = await wait(ids, timeout_seconds=seconds)
        except (Gone, NotFound) as problem:
            self._remove_erased(ids, problem)
            return
        self._calls |= {call.id: call for call in joined}
        self._open_ids = rest + [call.id for call in joined if not call.final]

    def _remove_erased(self, ids: Sequence[str], problem: Gone | NotFound) -> None:
        """The response names the place of the first call that does not exist. The others are waited for yet."""
        index = problem.extra.get("index")
        if not isinstance(index, int) or not 0 <= index < len(ids):
            raise problem
        self.erased_ids.append(ids[index])
        self._open_ids.remove(ids[index])
        del self._calls[ids[index]]


async def find_matching_calls(client: "CallReadMethods", where: Mapping[str, Any]) -> AwaitedCalls:
    """The calls that match now. `where` has arguments of `RingbackClient.calls`."""
    found: list[Call] = []
    async with aclosing(client.calls(**where)) as matching:
        async for call in matching:
            if len(found) == MATCHING_CALLS_MAX:
                raise InvalidArgument(
                    f"More than {MATCHING_CALLS_MAX:,} calls match. Narrow the filters, with `since` for example."
                )
            found.append(call)
    return AwaitedCalls(client, found)
