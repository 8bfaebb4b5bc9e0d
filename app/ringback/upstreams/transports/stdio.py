"""MCP over the pipes of a child process. The transport of the SDK (2.3.0) has no limits and drops unreadable messages.

    child ──stdout──▶ LineSplitter ──▶ NotificationBuffer ──▶ decode_messages ──▶ the SDK's session
          ◀──stdin─── ChildInput ◀─────────────────────────────────────────────── its requests

An unreadable line ends the request that it answers with an error of ours (`transport_errors`). A line without a request is
counted (`faults`).
"""

import asyncio
import logging
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

from ringback.protocol.transport_errors import (
    EVENT_BYTES_MAX,
    LIST_BYTES_MAX,
    TRANSPORT_ERROR_MARKER,
    TransportErrorCode,
    too_large_message,
)
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.message_flow import SLICE_LINES, encode_refusal
from ringback.upstreams.transports.child_input import ChildInput
from ringback.upstreams.transports.child_process import READ_BYTES, ChildProcess, log_stderr, start_child_process
from ringback.upstreams.transports.child_records import ChildRecords
from ringback.upstreams.transports.error_output import ErrorOutput
from ringback.upstreams.transports.line_splitter import LineSplitter, OversizedLine
from ringback.upstreams.transports.message_decoder import (
    DecodedMessage,
    UndecodedMessage,
    decode_messages,
    find_response_id,
)
from ringback.upstreams.transports.notification_buffer import NotificationBuffer

log = logging.getLogger(__name__)

CHILD_REQUESTS_MAX: Final = 256
"""Concurrent requests of a child; a call needs one at a time."""
LATE_RESPONSES_MAX: Final = 1024
"""Remembered ids of abandoned requests, whose late responses are not counted as faults."""
EXIT_POLL_SECONDS: Final = 1.0
"""Between two checks whether the child still runs."""

_Inbound = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[_Inbound], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def open_stdio(
    config: UpstreamConfig,
    *,
    faults: FaultCounter,
    child_records: ChildRecords,
    child_requests: set[RequestId] | None = None,
) -> AsyncGenerator[tuple[Streams, ChildProcess]]:
    """Start the child and stop it when the context ends. Raises OSError if it cannot be started.

    An error that leaves the context has a note with the end of the child's standard error (`find_error_output`).

    `child_requests` has the requests of the child that get a response. The session takes out one that it leaves unanswered.
    """
    output = ErrorOutput(secrets=config.env.values())
    try:
        async with log_stderr(config.name, output) as errlog:
            child = await start_child_process(
                config.command, config.args, env=config.env, cwd=config.cwd, errlog=errlog, child_records=child_records
            )
            pipe = _StdioTransport(child, faults, set() if child_requests is None else child_requests)
            async with anyio.create_task_group() as tasks:
                for task in (pipe.read_output, pipe.accept_messages, pipe.write_input, pipe.close_on_exit):
                    tasks.start_soon(task)
                try:
                    yield pipe.streams, child
                finally:
                    with anyio.CancelScope(shield=True):  # every wait in it is bounded
                        await pipe.close()
                        await child.stop()
                        output.exit_code = child.exit_code
                    tasks.cancel_scope.cancel()
    except Exception as error:
        output.add_to(error)
        raise


class _StdioTransport:
    def __init__(self, child: ChildProcess, faults: FaultCounter, child_requests: set[RequestId]) -> None:
        self._child = child
        self._faults = faults
        self._to_session, from_child = anyio.create_memory_object_stream[_Inbound](0)
        from_session, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self.streams: Streams = (from_child, from_session)
        self._now = asyncio.get_running_loop().time
        self._notifications = NotificationBuffer(now=self._now)
        self._flow = faults.flow.open_stream()
        self._open_requests: dict[RequestId, str] = {}
        """The methods of open requests, by id."""
        self._late_responses: dict[RequestId, None] = {}
        self._child_requests = child_requests
        self._input = ChildInput(child, faults, refuse_request=self._refuse_request)

    async def close(self) -> None:
        """Close both streams, and write the accepted messages for a bounded time."""
        for stream in self.streams:
            await stream.aclose()
        await self._input.flush()

    # -- from the child --

    async def read_output(self) -> None:
        splitter = LineSplitter(EVENT_BYTES_MAX)
        async with self._to_session:
            while (chunk := await self._read_chunk()) is not None:
                with suppress(
                    anyio.BrokenResourceError, anyio.ClosedResourceError
                ):  # the session is closed: read on, so that the child can exit
                    await self._handle_chunk(splitter, chunk)
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._handle_rest(splitter.take_rest())
                await self._input.refuse_queued()

    async def _handle_chunk(self, splitter: LineSplitter, chunk: bytes) -> None:
        for number, line in enumerate(splitter.feed(chunk), start=1):
            await self._handle_line(line)
            if number % SLICE_LINES == 0:
                await self._flow.take_turn()
        for line in self._notifications.pop_due():
            await self._handle_messages(line)

    async def _handle_rest(self, rest: bytes) -> None:
        """Handle a last line without a newline. Of a part of a message, the response is lost."""
        if all(isinstance(read, DecodedMessage) for read in await decode_messages(rest)):
            await self._handle_line(rest)

    async def _read_chunk(self) -> bytes | None:
        """The next output; empty if buffered notifications are due before it, None at the end."""
        try:
            async with asyncio.timeout(self._notifications.wait_seconds()):
                chunk = await self._child.stdout.read(READ_BYTES)
        except TimeoutError:
            return b""
        except ConnectionError:
            return None
        self._child.chunks_received += 1
        return chunk or None

    async def _handle_line(self, line: bytes | OversizedLine) -> None:
        if isinstance(line, OversizedLine):
            await self._handle_oversized(line)
            return
        if self._notifications.buffer_if_limited(line):
            await self._limit_rate()
        elif (rejection := self._check_list_size(line)) is not None:
            await self._reject_response(*rejection)
        else:
            await self._handle_messages(line)
        for _ in range(self._notifications.count_dropped()):
            self._faults.increment(Fault.DROPPED)

    async def _limit_rate(self) -> None:
        """Count a line without a pending request. A child that writes too many of them is read more slowly."""
        if await self._flow.take_in(1):
            self._faults.increment(Fault.SLOWED)

    async def _handle_oversized(self, line: OversizedLine) -> None:
        request_id = find_response_id(line.tail if line.has_ended else line.head)
        if not line.has_ended:
            self._faults.increment(Fault.OVERSIZED)
        if request_id is not None and coerce_request_id(request_id) in self._open_requests:
            await self._fail_request(request_id, too_large_message(EVENT_BYTES_MAX))

    def _check_list_size(self, line: bytes) -> tuple[RequestId, str] | None:
        """The request id and the error of a list page that is too large; None for all other lines."""
        request_id = find_response_id(line) if len(line) > LIST_BYTES_MAX else None
        if request_id is None or not self._open_requests.get(coerce_request_id(request_id), "").endswith("/list"):
            return None
        return request_id, too_large_message(LIST_BYTES_MAX)

    async def _reject_response(self, request_id: RequestId, why: str) -> None:
        self._faults.increment(Fault.OVERSIZED)
        await self._fail_request(request_id, why)

    async def _handle_messages(self, line: bytes) -> None:
        for read in await decode_messages(line):
            if isinstance(read, UndecodedMessage):
                await self._handle_unreadable(read)
            else:
                await self._handle_message(read)

    async def _handle_unreadable(self, read: UndecodedMessage) -> None:
        self._faults.increment(Fault.UNREADABLE)
        await self._limit_rate()
        if read.request_id is not None and coerce_request_id(read.request_id) in self._open_requests:
            await self._fail_request(read.request_id, f"The upstream's answer {read.reason}.")

    async def _handle_message(self, read: DecodedMessage) -> None:
        if read.repaired_characters:
            self._faults.increment(Fault.REPAIRED)
        match read.message:
            case JSONRPCResponse(id=request_id) | JSONRPCError(id=request_id):
                await self._handle_response(request_id, read.message)
            case JSONRPCRequest(id=request_id):
                await self._handle_child_request(request_id, read.message)
            case _:
                self._forget_withdrawn_request(read.message)
                await self._limit_rate()
                await self._forward_message(read.message)

    async def _handle_response(self, request_id: RequestId | None, message: JSONRPCMessage) -> None:
        key = None if request_id is None else coerce_request_id(request_id)
        if key is not None and self._open_requests.pop(key, None) is not None:
            for line in self._notifications.pop_all():
                await self._handle_messages(line)
            await self._forward_message(message)
        elif key is None or key not in self._late_responses:
            self._faults.increment(Fault.UNMATCHED)
            await self._limit_rate()
        else:  # the session learns that the tool has ended
            del self._late_responses[key]
            await self._forward_message(message)

    async def _handle_child_request(self, request_id: RequestId, message: JSONRPCMessage) -> None:
        """Pass it on, or refuse it at once: the responses of other calls are behind it."""
        if len(self._child_requests) >= CHILD_REQUESTS_MAX or not self._flow.try_request():
            self._input.enqueue(None, encode_refusal(request_id))
            self._faults.increment(Fault.SLOWED)
            await self._flow.take_in_refusal(is_posted=False)
            return
        self._child_requests.add(request_id)
        await self._forward_message(message)

    def _forget_withdrawn_request(self, notification: JSONRPCMessage) -> None:
        """A request that the child has cancelled gets no response."""
        match notification:
            case JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": str() | int() as withdrawn}
            ):
                self._child_requests.discard(withdrawn)
            case _:
                pass

    async def _fail_request(
        self, request_id: RequestId, why: str, code: TransportErrorCode = TransportErrorCode.INVALID_RESPONSE
    ) -> None:
        """End an open request with a transport error."""
        key = coerce_request_id(request_id)
        if self._open_requests.pop(key, None) is None:
            return
        self._expect_late_response(key)
        error = ErrorData(code=int(code), message=why, data=TRANSPORT_ERROR_MARKER)
        await self._forward_message(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def _forward_message(self, message: JSONRPCMessage) -> None:
        await self._to_session.send(SessionMessage(message))

    # -- to the child --

    async def accept_messages(self) -> None:
        async with self._from_session:
            async for session_message in self._from_session:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._accept_message(session_message.message)

    async def _accept_message(self, message: JSONRPCMessage) -> None:
        request_id = None
        match message:
            case JSONRPCRequest(id=request_id, method=method):
                self._open_requests[coerce_request_id(request_id)] = method
            case JSONRPCResponse(id=answered) | JSONRPCError(id=answered):
                self._child_requests.discard(answered) if answered is not None else None
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as given_up}):
                self._open_requests.pop(coerce_request_id(given_up), None)
                self._expect_late_response(coerce_request_id(given_up))
            case _:
                pass
        try:
            text = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        except ValueError:  # half a surrogate pair from a client
            text = None
        if text is not None and self._input.enqueue(request_id, text):
            return
        if text is not None:
            self._faults.increment(Fault.STALLED)
        if request_id is not None:
            await self._fail_request(
                request_id, _STALLED_MESSAGE if text is not None else _NOT_UNICODE_MESSAGE, TransportErrorCode.NOT_SENT
            )

    async def write_input(self) -> None:
        await self._input.write_queued()
        await self._end_session()  # the child closed its input, so it can answer no further request

    async def close_on_exit(self) -> None:
        """End the session after the child exits. If a grandchild holds the pipe open, reading does not notice the exit."""
        was_running = True
        while was_running:  # one more pause after the exit, in which its last output is read
            was_running = self._child.is_running
            await asyncio.sleep(EXIT_POLL_SECONDS)
        await self._end_session()

    async def _end_session(self) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._input.refuse_queued()
        await self._to_session.aclose()

    async def _refuse_request(self, request_id: RequestId) -> None:
        why = _STALLED_MESSAGE if self._child.is_stalled else _ENDED_MESSAGE
        await self._fail_request(request_id, why, TransportErrorCode.NOT_SENT)

    def _expect_late_response(self, key: RequestId) -> None:
        if len(self._late_responses) >= LATE_RESPONSES_MAX:
            del self._late_responses[next(iter(self._late_responses))]
        self._late_responses[key] = None


_STALLED_MESSAGE: Final = "The upstream does not read its input, so the request was not sent."
_ENDED_MESSAGE: Final = "The upstream ended before the request was sent."
_NOT_UNICODE_MESSAGE: Final = "The request contains invalid Unicode, so it was not sent."
