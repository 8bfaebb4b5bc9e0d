"""The port through which a tools/call that waits before it goes out, or was refused for its token, is recorded as unsent.

    the token expires soon ──┐
    tools/call ──▶ 401 ──────┼──▶ `record_unsent` ──▶ refresh ──▶ `record_dispatch` ──▶ tools/call
    no connection after 1 s ─┘              └──────▶ no token: the call waits for a login

A refresh of tokens takes seconds, and so do a connection and the next session. If the process dies meanwhile, the store says
that the tool of this call did not run.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, Protocol

SLOW_SECONDS: Final = 1.0
"""A wait for a connection or a session is recorded after this time: most end earlier, and a record costs two commits."""
DISPATCH_RECORD: Final = "ringback/dispatch_record"
"""The extension of a POST with the `DispatchRecord` of its tools/call. Other requests of a call have none."""
WAITING_PRINCIPALS_MAX: Final = 256
"""The calls of so many principals wait unsent beside those that run at an upstream. They hold sessions, of which there are as
many more."""


class DispatchRecord(Protocol):
    """Whether the store says that a call was sent. All methods may raise; the request is then not sent."""

    @property
    def is_unsent(self) -> bool:
        """Whether the call waits unsent, after `record_unsent` and before `record_dispatch`."""
        ...

    async def record_unsent(self) -> None:
        """Commit that the tools/call is not sent yet, or was refused unread. Call it before anything that takes long."""
        ...

    async def wait_unsent(self, seconds: float) -> None:
        """Wait after `record_unsent`. Other calls run at the upstream in the place of this one meanwhile.

        They do not if too many calls wait already, or those of `WAITING_PRINCIPALS_MAX` other principals.
        """
        ...

    async def record_dispatch(self) -> None:
        """Call it before each tools/call goes out. It commits the dispatch after `record_unsent`."""
        ...


_RECORD: Final[ContextVar[DispatchRecord | None]] = ContextVar("ringback_dispatch_record", default=None)
"""The record of the call in whose context a request is made. Over HTTP, the SDK sends a request in its context."""


def enter_dispatch_record(record: DispatchRecord) -> None:
    """Let the transports record what becomes of the tools/call requests of this task from now on."""
    _RECORD.set(record)


def get_dispatch_record() -> DispatchRecord | None:
    return _RECORD.get()


def leave_dispatch_record() -> None:
    """Forget the call in whose context this task was started, for a session that outlives the call."""
    _RECORD.set(None)


@asynccontextmanager
async def recording_slow_wait(record: DispatchRecord | None) -> AsyncGenerator[None]:
    """Record the call as unsent if the block, a wait before its tools/call goes out, takes longer than `SLOW_SECONDS`.

    `DispatchRecord.record_dispatch` follows before the tools/call. The block ends after the commit that it has caused.
    """
    if record is None:
        yield
        return
    wait = _SlowWait(record)
    try:
        yield
    finally:
        await wait.end()


class _SlowWait:
    def __init__(self, record: DispatchRecord) -> None:
        self._record = record
        self._recording: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._begin_recording)

    async def end(self) -> None:
        """Wait for a commit that has begun: it must not follow that of the dispatch. A cancellation cancels it, too."""
        self._timer.cancel()
        if self._recording is not None:
            try:
                await asyncio.wait({self._recording})
            finally:
                self._recording.cancel()

    def _begin_recording(self) -> None:
        self._recording = asyncio.create_task(self._record_unsent())

    async def _record_unsent(self) -> None:
        with suppress(Exception):  # `record_dispatch` commits in any case after it, or raises
            await self._record.record_unsent()
