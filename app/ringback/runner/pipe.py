"""MCP over the pipes of a child, by a transport of our own: the SDK's (2.3.0) has no bounds, and loses what it cannot read.

    child ──stdout──▶ LineSplitter ──▶ Notices (a flood) ──▶ read_messages ──▶ the SDK's session
          ◀──stdin─── a bounded queue ◀─────────────────────────────────────── its requests

A line that cannot be read ends the request that it answers with an error of ours (`transport.MARK`). One that belongs to no
request is counted (`runner.faults`). A child that does not read its input keeps what is half written to it, and what was not
begun is refused as `NotSent`: it is not killed, because a server that runs a synchronous tool reads nothing meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from ringback.domain import jsontext
from ringback.runner.child import READ_BYTES, Child, start_child
from ringback.runner.child_records import ChildRecords
from ringback.runner.config import UpstreamConfig
from ringback.runner.faults import Fault, Faults
from ringback.runner.lines import LineSplitter, Overlong
from ringback.runner.notices import BURST, PER_SECOND, Notices, TokenBucket
from ringback.runner.reading import Read, Unreadable, find_id, read_messages
from ringback.runner.stdio import logged_stderr
from ringback.runner.transport import EVENT_BYTES_MAX, LIST_BYTES_MAX, MARK, Trouble, too_large

log = logging.getLogger(__name__)

WRITE_SECONDS: Final = 30.0
"""How long a child may leave its input unread before requests are refused; a pipe holds 64 KiB, which is many requests."""
QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of messages that wait to be written to one child: four of the largest that are taken from clients."""
QUESTIONS_MAX: Final = 256
"""Requests of a child that wait for our answer at once; a call asks one at a time."""
ENDED_MAX: Final = 1024
"""Requests that were given up, whose late answers are nobody's fault."""
LINES_PER_SECOND: Final = 20_000
"""Of lines that answer nothing. A child that writes more waits, so that looking at them never takes all of the event loop."""
LINES_AT_ONCE: Final = 64
"""Between two turns of everybody else."""
LOOK_SECONDS: Final = 1.0
"""Between two looks whether the child is still there."""
FLUSH_SECONDS: Final = 0.5
"""At the end, for messages that were accepted before it."""

_Inbound = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[_Inbound], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_pipe(
    config: UpstreamConfig, *, faults: Faults, records: ChildRecords
) -> AsyncGenerator[tuple[Streams, Child]]:
    """Start the child, and speak with it until this is left; then it is ended. Raises OSError if it cannot be started."""
    async with logged_stderr(config.name) as errlog:
        child = await start_child(
            config.command, config.args, env=config.env, cwd=config.cwd, errlog=errlog, records=records
        )
        pipe = _Pipe(child, faults)
        async with anyio.create_task_group() as tasks:
            for task in (pipe.read, pipe.accept, pipe.write, pipe.notice_death):
                tasks.start_soon(task)
            try:
                yield pipe.streams, child
            finally:
                with anyio.CancelScope(shield=True):  # every wait in it is bounded
                    await pipe.close()
                    await child.stop()
                tasks.cancel_scope.cancel()


class _Pipe:
    def __init__(self, child: Child, faults: Faults) -> None:
        self._child = child
        self._faults = faults
        self._to_session, from_child = anyio.create_memory_object_stream[_Inbound](0)
        from_session, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self.streams: Streams = (from_child, from_session)
        now = asyncio.get_running_loop().time
        self._notices = Notices(TokenBucket(per_second=PER_SECOND, burst=BURST, now=now))
        self._lines = TokenBucket(per_second=LINES_PER_SECOND, burst=LINES_PER_SECOND, now=now)
        self._asked: dict[RequestId, str] = {}
        """Methods of our requests that are open, by their ids."""
        self._ended: dict[RequestId, None] = {}
        self._questions: set[RequestId] = set()
        self._queue: deque[tuple[RequestId | None, bytes]] = deque()
        self._queued_bytes = 0
        self._more = asyncio.Event()
        self._written = asyncio.Event()
        child.stdin.transport.set_write_buffer_limits(0)  # `drain` then waits for the pipe, not for a buffer of ours

    async def close(self) -> None:
        """Hear nothing more, and write what was accepted, but not for long."""
        for stream in self.streams:
            await stream.aclose()
        with anyio.move_on_after(FLUSH_SECONDS):
            while self._queue or not self._written.is_set():
                self._written.clear()
                self._more.set()
                await self._written.wait()

    # -- from the child --

    async def read(self) -> None:
        splitter = LineSplitter(EVENT_BYTES_MAX)
        async with self._to_session:
            while (chunk := await self._chunk()) is not None:
                with suppress(
                    anyio.BrokenResourceError, anyio.ClosedResourceError
                ):  # the session is gone: read on, so that it can end
                    await self._take_chunk(splitter, chunk)

    async def _take_chunk(self, splitter: LineSplitter, chunk: bytes) -> None:
        for number, line in enumerate(splitter.feed(chunk), start=1):
            await self._take_line(line)
            if number % LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
        for line in self._notices.due():
            await self._take_messages(line)

    async def _chunk(self) -> bytes | None:
        """What came next; nothing if notifications are due first, None at the end."""
        try:
            async with asyncio.timeout(self._notices.wait_seconds()):
                chunk = await self._child.stdout.read(READ_BYTES)
        except TimeoutError:
            return b""
        except ConnectionError:
            return None
        self._child.heard += 1
        return chunk or None

    async def _take_line(self, line: bytes | Overlong) -> None:
        if isinstance(line, Overlong):
            await self._take_overlong(line)
            return
        if self._notices.take(line):
            await self._pace()
        elif (refusal := self._refused_unread(line)) is not None:
            await self._refuse_answer(*refusal)
        else:
            await self._take_messages(line)
        dropped, self._notices.dropped = self._notices.dropped, 0
        for _ in range(dropped):
            self._faults.count(Fault.DROPPED)

    async def _pace(self) -> None:
        if (wait := self._lines.spend()) > 0:
            await asyncio.sleep(wait)

    async def _take_overlong(self, line: Overlong) -> None:
        request_id = find_id(line.tail if line.has_ended else line.head)
        if not line.has_ended:
            self._faults.count(Fault.OVERSIZED)
        if request_id is not None and coerce_request_id(request_id) in self._asked:
            await self._end(request_id, too_large(EVENT_BYTES_MAX))

    def _refused_unread(self, line: bytes) -> tuple[RequestId, str] | None:
        """A page of a list that is too large, by its id and why."""
        request_id = find_id(line) if len(line) > LIST_BYTES_MAX else None
        if request_id is None or not self._asked.get(coerce_request_id(request_id), "").endswith("/list"):
            return None
        return request_id, too_large(LIST_BYTES_MAX)

    async def _refuse_answer(self, request_id: RequestId, why: str) -> None:
        self._faults.count(Fault.OVERSIZED)
        await self._end(request_id, why)

    async def _take_messages(self, line: bytes) -> None:
        for read in await read_messages(line):
            if isinstance(read, Unreadable):
                await self._take_unreadable(read)
            else:
                await self._take(read)

    async def _take_unreadable(self, read: Unreadable) -> None:
        self._faults.count(Fault.UNREADABLE)
        await self._pace()
        if read.request_id is not None and coerce_request_id(read.request_id) in self._asked:
            await self._end(read.request_id, f"The upstream's answer {read.reason}.")

    async def _take(self, read: Read) -> None:
        if read.repaired:
            self._faults.count(Fault.REPAIRED)
        match read.message:
            case JSONRPCResponse(id=request_id) | JSONRPCError(id=request_id):
                await self._answer(request_id, read.message)
            case JSONRPCRequest(id=request_id):
                await self._question(request_id, read.message)
            case _:
                await self._pace()
                await self._hand_on(read.message)

    async def _answer(self, request_id: RequestId | None, message: JSONRPCMessage) -> None:
        key = None if request_id is None else coerce_request_id(request_id)
        if key is not None and self._asked.pop(key, None) is not None:
            for line in self._notices.all():
                await self._take_messages(line)
            await self._hand_on(message)
        elif key is None or key not in self._ended:
            self._faults.count(Fault.UNMATCHED)
            await self._pace()
        else:
            del self._ended[key]

    async def _question(self, request_id: RequestId, message: JSONRPCMessage) -> None:
        if len(self._questions) >= QUESTIONS_MAX:
            error = {"code": -32000, "message": "Too many requests wait for an answer. Ask again later."}
            self._put(None, jsontext.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}))
            await self._pace()
            return
        self._questions.add(request_id)
        await self._hand_on(message)

    async def _end(self, request_id: RequestId, why: str, trouble: Trouble = Trouble.NO_ANSWER) -> None:
        """End a request of ours with an error of ours."""
        key = coerce_request_id(request_id)
        if self._asked.pop(key, None) is None:
            return
        self._expect_late_answer(key)
        error = ErrorData(code=int(trouble), message=why, data=MARK)
        await self._hand_on(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def _hand_on(self, message: JSONRPCMessage) -> None:
        await self._to_session.send(SessionMessage(message))

    # -- to the child --

    async def accept(self) -> None:
        async with self._from_session:
            async for session_message in self._from_session:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._accept(session_message.message)

    async def _accept(self, message: JSONRPCMessage) -> None:
        request_id = None
        match message:
            case JSONRPCRequest(id=request_id, method=method):
                self._asked[coerce_request_id(request_id)] = method
            case JSONRPCResponse(id=answered) | JSONRPCError(id=answered):
                self._questions.discard(answered) if answered is not None else None
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as given_up}):
                self._asked.pop(coerce_request_id(given_up), None)
                self._expect_late_answer(coerce_request_id(given_up))
            case _:
                pass
        try:
            text = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        except ValueError:  # half a surrogate pair, from a client
            text = None
        if text is not None and self._put(request_id, text):
            return
        if text is not None:
            self._faults.count(Fault.STALLED)
        if request_id is not None:
            await self._end(request_id, _NOT_READ if text is not None else _NOT_SENDABLE, Trouble.NOT_SENT)

    def _put(self, request_id: RequestId | None, text: bytes) -> bool:
        """Queue a message; False if there is no room, or nobody reads it."""
        refused = self._child.stalled and request_id is not None
        if refused or self._queued_bytes + len(text) > QUEUE_BYTES_MAX:
            return False
        self._queue.append((request_id, text + b"\n"))
        self._queued_bytes += len(text) + 1
        self._more.set()
        return True

    async def write(self) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                while self._queue:
                    _, text = self._queue.popleft()
                    self._queued_bytes -= len(text)
                    self._child.stdin.write(text)
                    await self._drain()
                self._written.set()
                self._more.clear()
                await self._more.wait()
        self._queue.clear()
        self._written.set()
        await self._to_session.aclose()  # it closed its input, so nothing more will be answered: the session ends

    async def notice_death(self) -> None:
        """The end of a child whose pipe a grandchild holds open: nothing else tells of it."""
        was_alive = True
        while was_alive:  # what it wrote last is read between the look that finds it dead and the one after
            was_alive = self._child.is_alive
            await asyncio.sleep(LOOK_SECONDS)
        await self._to_session.aclose()

    async def _drain(self) -> None:
        """Until the child has read what was written last; what waits behind it is refused when that takes too long."""
        draining = asyncio.ensure_future(self._child.stdin.drain())
        try:
            while not (await asyncio.wait({draining}, timeout=WRITE_SECONDS))[0]:
                await self._stall()
        finally:
            draining.cancel()
        await draining
        self._child.stalled = False

    async def _stall(self) -> None:
        if not self._child.stalled:
            self._child.stalled = True
            self._faults.count(Fault.STALLED)
        kept = [(request_id, text) for request_id, text in self._queue if request_id is None]
        refused = [request_id for request_id, _ in self._queue if request_id is not None]
        self._queue = deque(kept)
        self._queued_bytes = sum(len(text) for _, text in kept)
        for request_id in refused:
            await self._end(request_id, _NOT_READ, Trouble.NOT_SENT)

    def _expect_late_answer(self, key: RequestId) -> None:
        if len(self._ended) >= ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._ended[key] = None


_NOT_READ: Final = "The upstream does not read its input, so the request was not sent."
_NOT_SENDABLE: Final = "The request holds text that is no Unicode, so it was not sent."
