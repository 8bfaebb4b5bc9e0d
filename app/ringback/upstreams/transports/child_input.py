"""The input of a child process: a bounded queue of messages, written as the child reads them.

If a child does not read its input, requests that are not yet being written fail as `RequestNotSent`. The child is not killed,
because a server that runs a synchronous tool reads nothing meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio
from mcp_types import RequestId

from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.transports.child_process import ChildProcess

WRITE_TIMEOUT_SECONDS: Final = 30.0
"""How long a child may leave its input unread before requests are rejected; its pipe holds 64 KiB, which is many requests."""
QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Messages queued for one child: four of the largest that clients may send."""
FLUSH_TIMEOUT_SECONDS: Final = 0.5
"""When closing, for messages accepted before."""


class ChildInput:
    def __init__(
        self, child: ChildProcess, faults: FaultCounter, *, refuse_request: Callable[[RequestId], Awaitable[None]]
    ) -> None:
        """`refuse_request` is called with each queued request that is dropped because the child reads nothing."""
        self._child = child
        self._faults = faults
        self._refuse_request = refuse_request
        self._queue: deque[tuple[RequestId | None, bytes]] = deque()
        """Each message with its id if it is a request."""
        self._queued_bytes = 0
        self._queue_filled = asyncio.Event()
        self._queue_flushed = asyncio.Event()
        self._refusing = asyncio.Lock()
        # `drain` then waits for the pipe, not for a buffer in this process.
        child.stdin.transport.set_write_buffer_limits(0)

    def enqueue(self, request_id: RequestId | None, text: bytes) -> bool:
        """Queue a message; False if the queue is full, or if the child is stalled and the message is a request."""
        is_stalled_request = self._child.is_stalled and request_id is not None
        if is_stalled_request or self._queued_bytes + len(text) > QUEUE_BYTES_MAX:
            return False
        self._queue.append((request_id, text + b"\n"))
        self._queued_bytes += len(text) + 1
        self._queue_filled.set()
        return True

    async def write_queued(self) -> None:
        """Write queued messages until the child closes its input. What is queued then was not sent (`refuse_queued`)."""
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                while self._queue:
                    _, text = self._queue.popleft()
                    self._queued_bytes -= len(text)
                    self._child.stdin.write(text)
                    await self._drain()
                self._queue_flushed.set()
                self._queue_filled.clear()
                await self._queue_filled.wait()
        self._queue_flushed.set()

    async def flush(self) -> None:
        """Wait until the queued messages are written, at most `FLUSH_TIMEOUT_SECONDS`."""
        with anyio.move_on_after(FLUSH_TIMEOUT_SECONDS):
            while self._queue or not self._queue_flushed.is_set():
                self._queue_flushed.clear()
                self._queue_filled.set()
                await self._queue_flushed.wait()

    async def _drain(self) -> None:
        """Wait until the child has read the last message; after a timeout, the queued requests are refused."""
        draining = asyncio.ensure_future(self._child.stdin.drain())
        try:
            while not (await asyncio.wait({draining}, timeout=WRITE_TIMEOUT_SECONDS))[0]:
                await self._mark_stalled()
        finally:
            draining.cancel()
        await draining
        self._child.is_stalled = False

    async def _mark_stalled(self) -> None:
        if not self._child.is_stalled:
            self._child.is_stalled = True
            self._faults.increment(Fault.STALLED)
        unsent_responses = [(request_id, text) for request_id, text in self._queue if request_id is None]
        await self._refuse_all_but(unsent_responses)

    async def refuse_queued(self) -> None:
        """Call it before the session ends, when nothing is written any more. A request that is being written may have arrived.

        The end of the output and that of the input both lead here: each returns when all requests are refused.
        """
        async with self._refusing:
            await self._refuse_all_but([])

    async def _refuse_all_but(self, kept: Sequence[tuple[RequestId | None, bytes]]) -> None:
        refused = [request_id for request_id, _ in self._queue if request_id is not None]
        self._queue = deque(kept)
        self._queued_bytes = sum(len(text) for _, text in kept)
        for request_id in refused:
            await self._refuse_request(request_id)
