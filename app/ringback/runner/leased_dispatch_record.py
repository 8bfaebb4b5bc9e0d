"""Records under the lease that the request of a call waits for a token or was refused for it, and that it is sent then."""

import asyncio
from typing import Protocol

from ringback.domain.call import Call, Handle
from ringback.runner.drivers.driver import LeaseLost
from ringback.waits import wait_first


class DispatchWriter(Protocol):
    """What this module needs of a leased call. The methods commit, and raise `LeaseLost` if the lease is lost."""

    call: Call
    sent_round: Handle | None
    """The handle from which the request that is sent now continues (MRTR); None if it begins the call."""

    async def retract_dispatch(self) -> None: ...

    async def repeat_dispatch(self) -> None: ...

    async def save_handle(self, handle: Handle | None) -> None: ...

    async def wait_without_permit(self, seconds: float) -> None: ...


class LeasedDispatchRecord:
    """Implements `upstreams.dispatch_records.DispatchRecord`.

    The transport may send in a task of its own, which nothing cancels when the execution gives the call up. Then `close` has
    been called: a wait ends, and nothing is sent again, because another run of the call may have begun.
    """

    def __init__(self, writer: DispatchWriter) -> None:
        self._writer: DispatchWriter | None = writer
        """None once it is closed: the leased call keeps this record, and neither may keep the other with the arguments."""
        self._closed = asyncio.Event()
        self._is_retracted = False

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def is_unsent(self) -> bool:
        return self._is_retracted

    async def record_unsent(self) -> None:
        writer = self._require_open()
        if not self._is_retracted:
            self._is_retracted = True
            await _retract(writer)

    async def record_dispatch(self) -> None:
        writer = self._require_open()
        if self._is_retracted:
            await _repeat(writer)
            self._is_retracted = False
            self._require_open()

    async def wait_unsent(self, seconds: float) -> None:
        waiting = asyncio.ensure_future(self._require_open().wait_without_permit(seconds))
        await wait_first(waiting, self._closed.wait())
        self._require_open()
        waiting.result()

    def close(self) -> None:
        self._writer = None
        self._closed.set()

    def _require_open(self) -> DispatchWriter:
        if self._writer is None:
            raise LeaseLost
        return self._writer


async def _retract(writer: DispatchWriter) -> None:
    """The call is as it was before its last tools/call: between two rounds, or not sent."""
    if writer.sent_round is not None:
        await writer.save_handle(writer.sent_round)
    elif writer.call.handle is None:
        await writer.retract_dispatch()


async def _repeat(writer: DispatchWriter) -> None:
    if writer.sent_round is not None:
        await writer.save_handle(None)
    elif writer.call.handle is None:
        await writer.repeat_dispatch()
