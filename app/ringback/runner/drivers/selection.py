"""Selects the driver of a call: the one that made its handle, else the most durable one that the session supports."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

from ringback.domain.call import MRTR_DRIVER, Call
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, CallOutcome, failed_completion
from ringback.domain.clock import Clock
from ringback.domain.principal import Principal
from ringback.protocol.tasks import TASKS_EXTENSION
from ringback.runner.drivers.driver import BoundDriver, BoundDriverPort, CallContext, Driver
from ringback.runner.drivers.legacy_task import LEGACY_TASK_DRIVER, LegacyTaskDriver, runs_as_task
from ringback.runner.drivers.mrtr import MrtrDriver
from ringback.runner.drivers.plain import PLAIN_DRIVER, PlainDriver
from ringback.runner.drivers.stream import STREAM_DRIVER, StreamDriver
from ringback.runner.drivers.task import TASK_DRIVER, TaskDriver
from ringback.runner.drivers.url_elicitation import UrlElicitationDriver, is_url_round
from ringback.upstreams.session_ports import CallSessionPort

_MODERN_DRIVERS: Final = frozenset({MRTR_DRIVER, TASK_DRIVER})
_LEGACY_DRIVERS: Final = frozenset({LEGACY_TASK_DRIVER, STREAM_DRIVER})


class CallSessionOpener(Protocol):
    """What the provider needs of the upstreams."""

    def get_capacity(self) -> Mapping[str, int]: ...

    def has_open_session(self, call: Call) -> bool: ...

    def get_login_owner(self, call: Call) -> Principal: ...

    def open_call_session(self, call: Call) -> AbstractAsyncContextManager[CallSessionPort]: ...


class BoundDriverProvider:
    """Implements `driver.CallSessionProvider`: opens a session for a call and binds the driver that suits both."""

    def __init__(self, sessions: CallSessionOpener, *, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    def get_capacity(self) -> Mapping[str, int]:
        return self._sessions.get_capacity()

    def has_open_session(self, call: Call) -> bool:
        return self._sessions.has_open_session(call)

    def get_login_owner(self, call: Call) -> Principal:
        return self._sessions.get_login_owner(call)

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[BoundDriverPort]:
        async with self._sessions.open_call_session(call) as session:
            yield BoundDriver(session=session, driver=select_driver(call, session, clock=self._clock))


def select_driver(call: Call, session: CallSessionPort, *, clock: Clock) -> Driver:
    handle = None if call.handle is None else call.handle.driver
    if not session.protocol.is_modern:
        if is_url_round(call):
            return UrlElicitationDriver(_select_legacy_driver(call, session, None, clock=clock))
        if handle in _MODERN_DRIVERS:
            return UnsupportedHandleDriver()
        driver = _select_legacy_driver(call, session, handle, clock=clock)
        return UrlElicitationDriver(driver) if call.accepts_input and handle is None else driver
    if handle in _LEGACY_DRIVERS:
        return UnsupportedHandleDriver()
    if handle == TASK_DRIVER or session.protocol.has_extension(TASKS_EXTENSION):
        return TaskDriver(clock=clock)
    return MrtrDriver()


def _select_legacy_driver(call: Call, session: CallSessionPort, handle: str | None, *, clock: Clock) -> Driver:
    if handle == LEGACY_TASK_DRIVER or (handle is None and runs_as_task(session, call.tool)):
        return LegacyTaskDriver(clock=clock)
    if handle == STREAM_DRIVER or session.legacy_session.session_id is not None:
        return StreamDriver(clock=clock)
    return PlainDriver()


def predict_driver_name(session: CallSessionPort, tools: Iterable[str]) -> str:
    """The driver of a call that would start now. With the tasks of 2025-11-25 this holds for the tools that run as tasks."""
    if session.protocol.is_modern:
        return TASK_DRIVER if session.protocol.has_extension(TASKS_EXTENSION) else MRTR_DRIVER
    if any(runs_as_task(session, tool) for tool in tools):
        return LEGACY_TASK_DRIVER
    return PLAIN_DRIVER if session.legacy_session.session_id is None else STREAM_DRIVER


class UnsupportedHandleDriver:
    """For a call whose upstream changed its protocol era after the call was sent.

    A legacy server would run the tool again on the next round, and a modern server has no legacy sessions to go back to.
    """

    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion:  # noqa: ARG002 - the names of Driver
        return failed_completion(
            CallOutcome.UNKNOWN,
            "The upstream no longer speaks the protocol in which this call was started. The tool may have done its work.",
        )

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion:  # noqa: ARG002 - the names of Driver
        return CANCELLED_COMPLETION
