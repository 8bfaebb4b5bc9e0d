"""Which driver suits a call: the one that made its handle, else the best that its session offers."""

from collections.abc import Iterable
from typing import Final

from ringback.domain.call import CANCELLED, MRTR, Call, Ending, Outcome, failed
from ringback.domain.clock import Clock
from ringback.runner.drivers.base import Desk, Driver, Session
from ringback.runner.drivers.legacy_task import LEGACY_TASK, LegacyTaskDriver, runs_as_task
from ringback.runner.drivers.mrtr import MrtrDriver
from ringback.runner.drivers.plain import PLAIN, PlainDriver
from ringback.runner.drivers.stream import STREAM, StreamDriver
from ringback.runner.drivers.task import TASK, TASKS, TaskDriver

_MODERN: Final = frozenset({MRTR, TASK})
_LEGACY: Final = frozenset({LEGACY_TASK, STREAM})


def driver_for(call: Call, session: Session, *, clock: Clock) -> Driver:
    handle = None if call.handle is None else call.handle.driver
    if not session.negotiated.modern:
        return Stranded() if handle in _MODERN else _legacy_driver_for(call, session, handle, clock=clock)
    if handle in _LEGACY:
        return Stranded()
    if handle == TASK or session.negotiated.extends(TASKS):
        return TaskDriver(clock=clock)
    return MrtrDriver()


def _legacy_driver_for(call: Call, session: Session, handle: str | None, *, clock: Clock) -> Driver:
    if handle == LEGACY_TASK or (handle is None and runs_as_task(session, call.tool)):
        return LegacyTaskDriver(clock=clock)
    if handle == STREAM or session.stateful.name is not None:
        return StreamDriver(clock=clock)
    return PlainDriver()


def carried_by(session: Session, tools: Iterable[str]) -> str:
    """Names the driver of a call that would begin now; with the tasks of 2025-11-25, of those tools that run as one."""
    if session.negotiated.modern:
        return TASK if session.negotiated.extends(TASKS) else MRTR
    if any(runs_as_task(session, tool) for tool in tools):
        return LEGACY_TASK
    return PLAIN if session.stateful.name is None else STREAM


class Stranded:
    """For a call whose upstream no longer speaks the protocol in which the call was begun.

    Sending its next round to an older server would start the tool anew, and the sessions of before are gone from a newer one.
    """

    async def run(self, session: Session, desk: Desk) -> Ending:  # noqa: ARG002 - a Driver's names
        return failed(
            Outcome.UNKNOWN,
            "The upstream no longer speaks the protocol in which this call was begun. The tool may have done its work.",
        )

    async def cancel(self, session: Session, call: Call) -> Ending:  # noqa: ARG002 - a Driver's names
        return CANCELLED
