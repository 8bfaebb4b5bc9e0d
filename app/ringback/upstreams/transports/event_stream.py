"""Server-sent events of an upstream, looked through before the SDK reads them: bounded, readable, and about what was asked.

The SDK (2.3.0) takes any response on a request's stream for its answer, whatever id it carries, and gives up on text that is no
Unicode. Here an event that is no message, or another request's answer, becomes an error of ours, which ends the request. On a
stream that is no request's it is left out. A flood of notifications is slowed down: the stream is one call's, so nobody else
waits for it.
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

EVENT_LIMIT: Final = RateLimit(per_second=500, burst=2000)
"""Of notifications on one stream; a tool that tells more waits, and nobody else does."""
_FIELD_BYTES: Final = 4096
"""Around the data of an event: its name and id."""


class CheckedEventStream(httpx2.AsyncByteStream):
    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        *,
        request_id: RequestId | None,
        limit: int,
        faults: FaultCounter,
        large_results: LargeResults,
        encode_error: Callable[[str], bytes],
    ) -> None:
        """`request_id` is that of the request whose stream this is. `limit` is in bytes, for one event's data.

        `error` makes the JSON-RPC error with which the request ends, from words for whoever made the call.
        """
        self._stream = stream
        self._request_id = request_id
        self._limit = limit
        self._faults = faults
        self._large_results = large_results
        self._error = encode_error
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
        """What is to be read instead of this line, once its event is whole."""
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
        reads = await decode_messages(data)
        if len(reads) != 1 or isinstance(reads[0], UnreadableMessage):
            self._faults.increment(Fault.UNREADABLE)
            await self._limit_rate()
            return self._final_error_event("The upstream answered with something that is no JSON-RPC message.")
        return await self._check_message(reads[0], lines, _replace_data(lines, data.removeprefix(BOM)))

    async def _check_message(self, read: DecodedMessage, lines: list[bytes], whole: bytes) -> bytes | None:
        if read.repaired_characters:
            self._faults.increment(Fault.REPAIRED)
        match read.message:
            case JSONRPCResponse(id=answered) | JSONRPCError(id=answered) if self._request_id is not None:
                if answered is not None and coerce_request_id(answered) != coerce_request_id(self._request_id):
                    self._faults.increment(Fault.UNMATCHED)
                    return self._final_error_event("The upstream answered with the answer to another request.")
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
        return whole if not read.repaired_characters else _replace_data(lines, _encode_message(read.message))

    async def _limit_rate(self) -> None:
        if (wait := self._bucket.reserve(self._now())) > 0:
            await asyncio.sleep(wait)

    def _final_error_event(self, why: str) -> bytes | None:
        return None if self._request_id is None else b"data: " + self._error(why) + b"\n\n"


def _is_other_event_type(line: bytes) -> bool:
    """Whether it names the event as one that is no message."""
    return line.startswith(b"event:") and line[6:].strip() not in {b"message", b""}


def _encode_message(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _replace_data(lines: list[bytes], data: bytes) -> bytes:
    rest = [line for line in lines if line and line != b"\r" and not line.startswith(b"data:")]
    return b"\n".join([*rest, b"data: " + data]) + b"\n\n"
