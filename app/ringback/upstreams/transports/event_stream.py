"""Checks server-sent events of an upstream before the SDK reads them: their size, their encoding and their request id.

The SDK (2.3.0) accepts any response on the stream of a request, whatever its id, and fails on invalid Unicode. Here an invalid
message, or a response to another request, becomes an error of ours, which ends the request. On a stream without a request it is
dropped. A flood of notifications is slowed down; the stream serves one call, so no other call waits for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId

from ringback.domain.rate_limiter import RateLimit, TokenBucket
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.transports.large_results import LARGE_BYTES, LargeResults
from ringback.upstreams.transports.line_splitter import LineSplitter, OversizedLine
from ringback.upstreams.transports.message_decoder import BOM, DecodedMessage, UnreadableMessage, decode_messages
from ringback.upstreams.transports.paced_streams import PacedStreams

EVENT_LIMIT: Final = RateLimit(per_second=500, burst=2000)
"""For notifications on one stream. A tool that sends more is slowed down; other calls are not."""
_FIELD_BYTES: Final = 4096
"""For the name and id of an event, beside its data."""


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
        encode_error: Callable[[str], bytes],
    ) -> None:
        """`request_id` is the request of the stream, if it has one. `limit` is in bytes, for the data of one event.

        `encode_error` makes the JSON-RPC error that ends the request, from a text that the caller may read.
        """
        self._stream = stream
        self._request_id = request_id
        self._limit = limit
        self._faults = faults
        self._large_results = large_results
        self._paced_streams = paced_streams
        self._encode_error = encode_error
        self._now = asyncio.get_running_loop().time
        self._bucket = TokenBucket(EVENT_LIMIT)
        self._lines: list[bytes] = []
        self._size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        splitter = LineSplitter(self._limit + _FIELD_BYTES)
        async for chunk in self._stream:
            for line in splitter.feed(chunk):
                if (text := await self._add_line(line)) is not None:
                    yield text

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _add_line(self, line: bytes | OversizedLine) -> bytes | None:
        """Return the checked event if this line completes one."""
        if isinstance(line, OversizedLine):
            return None if line.has_ended else self._reject_oversized()
        self._size += len(line)
        if self._size > self._limit + _FIELD_BYTES:
            return self._reject_oversized()
        self._lines.append(line)
        if line not in {b"", b"\r"}:
            return None
        lines, self._lines, self._size = self._lines, [], 0
        return await self._check_event(lines)

    def _reject_oversized(self) -> bytes | None:
        self._lines, self._size = [], 0
        self._faults.increment(Fault.OVERSIZED)
        return self._final_error_event(f"The upstream's answer is larger than {self._limit} bytes.")

    async def _check_event(self, lines: list[bytes]) -> bytes | None:
        data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
        whole = b"\n".join(lines) + b"\n"
        if not data or any(b"\r" in line[:-1] for line in lines) or any(_is_other_event_type(line) for line in lines):
            return whole
        decoded = await decode_messages(data)
        if len(decoded) != 1 or isinstance(decoded[0], UnreadableMessage):
            self._faults.increment(Fault.UNREADABLE)
            await self._limit_rate()
            return self._final_error_event("The upstream answered with something that is no JSON-RPC message.")
        return await self._check_message(decoded[0], lines, _replace_data(lines, data.removeprefix(BOM)))

    async def _check_message(self, read: DecodedMessage, lines: list[bytes], whole: bytes) -> bytes | None:
        if read.repaired_characters:
            self._faults.increment(Fault.REPAIRED)
        match read.message:
            case JSONRPCResponse(id=answered) | JSONRPCError(id=answered) if self._request_id is not None:
                if answered is not None and coerce_request_id(answered) != coerce_request_id(self._request_id):
                    self._faults.increment(Fault.UNMATCHED)
                    return self._final_error_event("The upstream sent the response to another request.")
                if (
                    isinstance(read.message, JSONRPCResponse)
                    and len(whole) > LARGE_BYTES
                    and self._large_results.put_result(read.message)
                ):
                    return _replace_data(lines, self._large_results.encode_placeholder(read.message))
            case JSONRPCResponse() | JSONRPCError():
                pass
            case _:
                await self._limit_rate()
                await self._paced_streams.wait_for_room(self._request_id)
        return whole if not read.repaired_characters else _replace_data(lines, _encode_message(read.message))

    async def _limit_rate(self) -> None:
        if (wait := self._bucket.reserve(self._now())) > 0:
            await asyncio.sleep(wait)

    def _final_error_event(self, why: str) -> bytes | None:
        return None if self._request_id is None else b"data: " + self._encode_error(why) + b"\n\n"


def _is_other_event_type(line: bytes) -> bool:
    """Whether the line gives the event a type other than `message`."""
    return line.startswith(b"event:") and line[6:].strip() not in {b"message", b""}


def _encode_message(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _replace_data(lines: list[bytes], data: bytes) -> bytes:
    rest = [line for line in lines if line and line != b"\r" and not line.startswith(b"data:")]
    return b"\n".join([*rest, b"data: " + data]) + b"\n\n"
