"""What a driver is: it carries one call over a session to its end, and says truthfully how it ended.

A driver is made once and drives many calls at once, so it holds no state: what it must know again after this process has died
goes into its handle, and `Desk.keep` makes it durable before the driver waits for anything.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ringback.domain.call import Call, CallCompletion, Handle, Progress
from ringback.upstreams.session_ports import CallSessionPort


class LeaseLost(Exception):
    """The call is somebody else's now, or may be: whoever drives it here stops, and writes nothing."""


# -- what a driver is given: its call ----------------------------------------------------------------------------------------


class CallContext(Protocol):
    """What a driver may do to its call.

    Every write is durable when it returns and checks the lease; it raises `LeaseLost` when that has gone. While the store
    cannot be written it waits, as long as the lease is trusted.
    """

    @property
    def call(self) -> Call:
        """The call as this desk wrote or read it last."""
        ...

    async def report_progress(self, progress: Progress) -> None:
        """Take the newest progress; it is stored now and then, and never fails."""
        ...

    async def save_handle(self, handle: Handle | None) -> None:
        """Keep what finds the call again. None: from here on it could not be found again, until the next handle."""
        ...

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Everything that the upstream wants to know now, by its own keys: `{method, params}` each.

        New requests make the call `input_required` and ring; those that are not among them any more are withdrawn; with
        nothing left the call is `working` again. Those with an answer that was not yet passed on do not count as new.
        Raises `ValueError` when there is more than is kept, or something that was never offered to be asked.
        """
        ...

    async def wait_for_answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        """Answers to pass on, by the upstream's keys. Waits for one; empty when the time ran out, or at a cancellation."""
        ...

    async def mark_answers_sent(self, keys: Collection[str]) -> None:
        """These answers have arrived upstream; the call forgets them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedCall:
    """The upstream waits for answers without holding anything open: nobody needs to drive the call until they are there."""

    handle: Handle
    input_requests: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """As in `Desk.ask`."""


# -- the driver --------------------------------------------------------------------------------------------------------------


class Driver(Protocol):
    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        """Carry `desk.call` to its end: from its handle if it has one, else from its beginning.

        Being cancelled means that this process stops driving. With a handle kept, the upstream must not notice; without one,
        the request in flight is abandoned, which tells the upstream to stop. May raise `NotSent` when it has a handle: it
        is run again once the upstream is there.
        """
        ...

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion | None:
        """Tell the upstream to stop, while `run` goes on. May be repeated; raises `RequestFailed` when it cannot be told.

        The ending, if the call ends by that: then `run` is cancelled. None if the upstream will tell by itself how the call
        ended, which may be a result: then `run` goes on, and its `answers` return at once to have it look.
        """
        ...


class BoundDriverPort(Protocol):
    """A live session with the driver that suits the call: what the runner needs."""

    async def run_call(self, context: CallContext) -> CallCompletion | ParkedCall: ...

    async def cancel_call(self, call: Call) -> CallCompletion | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDriver:
    session: CallSessionPort
    driver: Driver

    async def run_call(self, context: CallContext) -> CallCompletion | ParkedCall:
        return await self.driver.run_call(self.session, context)

    async def cancel_call(self, call: Call) -> CallCompletion | None:
        return await self.driver.cancel_call(self.session, call)
