"""Checks server-sent events of an upstream before the SDK reads them: their size, their encoding and their request id.

Lines may end with LF, CRLF or CR. The events that are passed on have LF.

The SDK (2.3.0) accepts any response on the stream of a request, whatever its id, and fails on invalid Unicode. Here an invalid
message that may be the response, or a response to another request, becomes an error of ours, which ends the request. It is
dropped on a stream without a request, and on one that the SDK reads on with GET. An unreadable event that is no response (a
heartbeat, a notification with NaN) is left out; if the stream ends without a response behind it, the request ends with that
error, unless the SDK resumes the stream.

In a flood of notifications only the newest of each kind is decoded (`notification_buffer`), and the stream is read more slowly
(`message_flow`), except progress that is outdated when it is read (`progress_floods`). The events of a stream that is paced by
its reader are all kept.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import httpx2
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from ringback.asyncio_tasks import end_tasks
from ringback.domain.rate_limiter import RateLimit, TokenBucket
from ringback.protocol.transport_errors import TransportErrorCode
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.message_flow import BYTES_PER_UNIT, SLICE_BYTES, SLICE_LINES
from ringback.upstreams.transports.event_parts import (
    CANCELLED,
    answers_another_request,
    encode_error_event,
    encode_message,
    is_other_event_type,
    join_data,
    replace_data,
)
from ringback.upstreams.transports.large_results import LARGE_BYTES, LargeResults
from ringback.upstreams.transports.line_splitter import LineEnds, LineSplitter, OversizedLine
from ringback.upstreams.transports.message_decoder import (
    BOM,
    DecodedMessage,
    UndecodedMessage,
    decode_messages,
    is_batch,
)
from ringback.upstreams.transports.notification_buffer import NotificationBuffer, is_plain_notification
from ringback.upstreams.transports.open_response import OpenResponse
from ringback.upstreams.transports.paced_streams import PacedStreams
from ringback.upstreams.transports.progress_floods import find_group_ends, leave_out_outdated

EVENT_LIMIT: Final = RateLimit(per_second=500, burst=2000)
"""For the notifications of a stream that is paced by its reader."""
_FIELD_BYTES: Final = 4096
"""For the name and id of an event, beside its data."""

_NOTHING: Final = b""
_UNREADABLE: Final = "The upstream answered with something that is no JSON-RPC message."


class ChunkReader:
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(stream)
        self._reading: asyncio.Task[bytes | None] | None = None

    async def read_chunk(self, timeout_seconds: float | None) -> bytes | None:
        """The next chunk; empty if none arrives in time, None at the end. What the stream raises is passed on."""
        if timeout_seconds is None and self._reading is None:
            return await anext(self._chunks, None)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        done, _ = await asyncio.wait({self._reading}, timeout=timeout_seconds)
        if not done:
            return _NOTHING
        reading, self._reading = self._reading, None
        return reading.result()

    async def close(self) -> None:
        if self._reading is not None:
            await end_tasks([self._reading])

    async def _read(self) -> bytes | None:
        return await anext(self._chunks, None)


class CheckedEventStream(httpx2.AsyncByteStream):
    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        *,
        request_id: RequestId | None,
        limit: int,
        faults: FaultCounter,
        large_results: LargeResults,
        paced_streams: PacedStreams,
        open_response: OpenResponse | None = None,
        refuse_request: Callable[[RequestId], Awaitable[bool]],
    ) -> None:
        """`request_id` is the request of the stream, if it has one. `limit` is in bytes, for the data of one event.

        `open_response` is the response that this stream carries. `refuse_request` sends the refusal of a request of the server;
        False if the server does not take it.
        """
        self._stream = stream
        self._request_id = request_id
        self._limit = limit
        self._faults = faults
        self._large_results = large_results
        self._paced_streams = paced_streams
        self._refuse_request = refuse_request
        self._takes_refusals = True
        self._has_ended_early = False
        self._has_skipped_event = False
        """An unreadable event was left out, and no response has followed."""
        self._is_resumable = False
        """An event that is no message had an id, from which the SDK resumes the stream."""
        self._flow = faults.flow.open_stream()
        self._notifications = NotificationBuffer(now=self._flow.now, limit=self._flow.forward_limit)
        self._bucket = TokenBucket(EVENT_LIMIT)
        self._lines: list[bytes] = []
        self._size = 0
        self._skipped_bytes = 0
        """Left out since they were last counted as units of work."""
        self._open_response = open_response
        if open_response is not None:
            open_response.attach(self.end_early)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._read_events()) as events:
            try:
                async for text in events:
                    yield text
            except httpx2.TransportError:
                if not self._has_ended_early:
                    raise
        if self._has_ended_early:
            yield encode_error_event(TransportErrorCode.RESPONSE_LOST, CANCELLED)

    async def _read_events(self) -> AsyncGenerator[bytes]:
        splitter = LineSplitter(self._limit + _FIELD_BYTES)
        line_ends, chunks = LineEnds(), ChunkReader(self._stream)
        try:
            while (chunk := await chunks.read_chunk(self._notifications.wait_seconds())) is not None:
                line_count = 0
                for start in range(0, len(chunk), SLICE_BYTES):
                    lines_before = line_count
                    for line in self._read_lines(splitter, line_ends.replace(chunk[start : start + SLICE_BYTES])):
                        if not self._keep_inner_line(line):
                            for text in await self._add_line(line):
                                yield text
                        line_count += 1
                        if line_count % SLICE_LINES == 0:
                            await self._take_in_slice()
                    if start + SLICE_BYTES <= len(chunk) and line_count > lines_before:  # not within a large result
                        await self._flow.take_turn()
                for text in await self._check_buffered([*self._notifications.pop_due()]):
                    yield text
                skipped_units, self._skipped_bytes = divmod(self._skipped_bytes, BYTES_PER_UNIT)
                self._note_wait(has_waited=await self._flow.take_in(line_count % SLICE_LINES + skipped_units))
            for text in await self._end_events():
                yield text
        finally:
            await chunks.close()

    async def _end_events(self) -> Sequence[bytes]:
        """What the end of the stream passes on: buffered notifications, and an error in the place of a missing response."""
        buffered = await self._check_buffered([*self._notifications.pop_all()])
        lacks_response = self._has_skipped_event and not self._is_resumable
        return [*buffered, *self._final_error_event(_UNREADABLE)] if lacks_response else buffered

    async def aclose(self) -> None:
        if self._open_response is not None:
            self._open_response.detach(self.end_early)
        await self._stream.aclose()

    async def end_early(self) -> None:
        """Close the connection, and end the request with an error: at the end of a stream the SDK would reconnect."""
        self._has_ended_early = True
        await self._stream.aclose()

    async def _take_in_slice(self) -> None:
        """Wait until the next lines may be read; raises `ReadError` after `end_early`."""
        await self._flow.take_turn()
        self._note_wait(has_waited=await self._flow.take_in(SLICE_LINES))
        if self._has_ended_early:
            raise httpx2.ReadError(CANCELLED)

    def _read_lines(self, splitter: LineSplitter, chunk: bytes) -> Iterator[bytes | OversizedLine]:
        """The lines of a chunk, or of a slice of it. Once notifications are limited, outdated progress is left out of its rest.

        That is decided for each group of events: at the begin a permit may be free, which is enough for one event.
        """
        start = 0
        for end in find_group_ends(chunk):
            if self._notifications.is_limiting:
                break
            yield from splitter.feed(chunk[start:end])
            start = end
        yield from splitter.feed(self._leave_out_outdated(chunk[start:]))

    def _leave_out_outdated(self, rest: bytes) -> bytes:
        """In a flood, leave out progress that the same chunk replaces. It costs its bytes."""
        if not self._notifications.is_limiting or self._paced_streams.is_paced(self._request_id):
            return rest
        kept, count = leave_out_outdated(rest)
        if count:
            self._faults.increment(Fault.DROPPED, count)
            self._skipped_bytes += len(rest) - len(kept)
        return kept

    def _keep_inner_line(self, line: bytes | OversizedLine) -> bool:
        """Keep the line and return True, unless it ends its event or exceeds the limit."""
        if isinstance(line, OversizedLine) or not line or self._size + len(line) > self._limit:
            return False
        self._lines.append(line)
        self._size += len(line)
        return True

    async def _add_line(self, line: bytes | OversizedLine) -> Sequence[bytes]:
        """Return what is passed on if this line completes an event: nothing, the event, or buffered ones before it."""
        if isinstance(line, OversizedLine):
            return () if line.has_ended else self._reject_oversized()
        self._size += len(line)
        if self._size > self._limit + _FIELD_BYTES:
            return self._reject_oversized()
        self._lines.append(line)
        if line:
            return ()
        lines, self._lines, self._size = self._lines, [], 0
        return await self._check_event(lines)

    def _reject_oversized(self) -> Sequence[bytes]:
        self._lines, self._size = [], 0
        self._faults.increment(Fault.OVERSIZED)
        return self._final_error_event(f"The upstream's answer is larger than {self._limit} bytes.")

    async def _check_event(self, lines: list[bytes]) -> Sequence[bytes]:
        if all(line.startswith(b":") or not line for line in lines):
            return ()  # comments keep a connection open, and have no meaning
        data = join_data(lines)
        whole = b"\n".join(lines) + b"\n"
        if not data or any(is_other_event_type(line) for line in lines):
            self._note_event_id(lines)
            self._note_wait(has_waited=await self._flow.wait_for_forward())
            return (whole,)
        data = data.removeprefix(BOM)
        if not self._paced_streams.is_paced(self._request_id) and await self._buffer_event(data, lines):
            return ()
        return await self._check_data(data, lines)

    async def _buffer_event(self, data: bytes, lines: list[bytes]) -> bool:
        """Whether the event is a notification above the limit. It is buffered, and may replace an earlier one."""
        if not self._notifications.buffer_if_limited(data, b"\n".join(lines)):
            return False
        for _ in range(self._notifications.count_dropped()):
            self._faults.increment(Fault.DROPPED)
        self._note_wait(has_waited=await self._flow.take_in_event(len(data)))
        return True

    async def _check_buffered(self, events: Sequence[bytes]) -> Sequence[bytes]:
        texts: list[bytes] = []
        for event in events:
            lines = event.split(b"\n")
            texts += await self._check_data(join_data(lines).removeprefix(BOM), lines, is_counted=True)
        return texts

    async def _check_data(self, data: bytes, lines: list[bytes], *, is_counted: bool = False) -> Sequence[bytes]:
        decoded = await decode_messages(data)
        if is_batch(data):
            return await self._check_batch(decoded or [UndecodedMessage("is an empty batch")], lines)
        read = decoded[0] if decoded else UndecodedMessage("is no message")
        return await self._check_message(read, data, lines, is_counted=is_counted or is_plain_notification(data))

    async def _check_batch(
        self, batch: Sequence[DecodedMessage | UndecodedMessage], lines: list[bytes]
    ) -> Sequence[bytes]:
        """Pass on each message of a batch (2025-03-26) as an event of its own. The last one has the id of the event."""
        without_id = [line for line in lines if not line.startswith(b"id:")]
        texts: list[bytes] = []
        for read in batch:
            data = encode_message(read.message) if isinstance(read, DecodedMessage) else b""
            own_lines = lines if read is batch[-1] else without_id
            texts += await self._check_message(read, data, own_lines, is_counted=False)
        return texts

    async def _check_message(
        self, read: DecodedMessage | UndecodedMessage, data: bytes, lines: list[bytes], *, is_counted: bool
    ) -> Sequence[bytes]:
        """`is_counted`: the message has its permit of the limit for notifications."""
        if isinstance(read, UndecodedMessage):
            return await self._handle_unreadable(read, lines)
        if read.repaired_characters:
            self._faults.increment(Fault.REPAIRED)
        if isinstance(read.message, JSONRPCResponse | JSONRPCError):
            earlier = await self._check_buffered([*self._notifications.pop_all()])
            return [*earlier, *self._check_response(read, lines, data)]
        if isinstance(read.message, JSONRPCRequest) and not self._paced_streams.is_paced(self._request_id):
            if not self._flow.try_request():
                await self._refuse(read.message)
                return ()
            return self._pass_on(read, lines, data)
        await self._limit_message(is_counted=is_counted)
        return self._pass_on(read, lines, data)

    async def _handle_unreadable(self, undecoded: UndecodedMessage, lines: list[bytes]) -> Sequence[bytes]:
        """End the request if the event may be its response. Otherwise the response may follow, as over stdio."""
        self._faults.increment(Fault.UNREADABLE)
        await self._flow.wait_for_forward()
        if undecoded.may_be_response:
            return self._final_error_event(_UNREADABLE)
        self._has_skipped_event = True
        self._note_event_id(lines)
        return ()

    async def _refuse(self, request: JSONRPCRequest) -> None:
        """Refuse it at once, because the response may be behind it. A server that takes no refusal gets no more of them."""
        self._faults.increment(Fault.SLOWED)
        is_posted = self._takes_refusals
        if is_posted:
            self._takes_refusals = await self._refuse_request(request.id)
        await self._flow.take_in_refusal(is_posted=is_posted)

    def _pass_on(self, read: DecodedMessage, lines: list[bytes], data: bytes) -> Sequence[bytes]:
        return (replace_data(lines, data if not read.repaired_characters else encode_message(read.message)),)

    def _check_response(self, read: DecodedMessage, lines: list[bytes], data: bytes) -> Sequence[bytes]:
        message = read.message
        if answers_another_request(message, self._get_resumed_id()):
            # A server must not replay other streams (2025-11-25). Behind what one replays, the response may follow.
            self._faults.increment(Fault.UNMATCHED)
            return ()
        self._has_skipped_event = False
        if answers_another_request(message, self._request_id):
            self._faults.increment(Fault.UNMATCHED)
            return self._final_error_event("The upstream sent the response to another request.")
        if (
            isinstance(message, JSONRPCResponse)
            and self._request_id is not None
            and len(data) > LARGE_BYTES
            and self._large_results.put_result(message)
        ):
            return (replace_data(lines, self._large_results.encode_placeholder(message)),)
        return self._pass_on(read, lines, data)

    def _get_resumed_id(self) -> RequestId | None:
        """The request whose response the SDK reads on with GET. It would take the response to any request for that one."""
        return None if self._request_id is not None or self._open_response is None else self._open_response.request_id

    async def _limit_message(self, *, is_counted: bool) -> None:
        """Wait until the message may be passed on. A counted one has its permit."""
        if self._paced_streams.is_paced(self._request_id):
            if (wait := self._bucket.reserve(self._flow.now())) > 0:
                await self._flow.flow.clock.sleep(wait)
            await self._paced_streams.wait_for_space(self._request_id)
        elif not is_counted:
            self._note_wait(has_waited=await self._flow.wait_for_forward())

    def _note_event_id(self, lines: list[bytes]) -> None:
        self._is_resumable = self._is_resumable or any(line.startswith(b"id:") for line in lines)

    def _note_wait(self, *, has_waited: bool) -> None:
        if has_waited:
            self._faults.increment(Fault.SLOWED)

    def _final_error_event(self, why: str) -> Sequence[bytes]:
        """The JSON-RPC error that ends the request. `why` is a text that the caller may read."""
        return () if self._request_id is None else (encode_error_event(TransportErrorCode.INVALID_RESPONSE, why),)
