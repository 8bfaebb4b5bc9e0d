"""Limits the memory of large responses that their clients have not read: of each principal, and in all.

A response stays in memory until its client has read it. A client on a slow link may take as long as it needs, and one that
reads nothing is cut off after a minute (`http_server`). Without a limit, each connection could hold a result of 16 MiB.

    middleware ──▶ open_response ──▶ ResponseMemory, in the ASGI state of the request
    endpoint   ──▶ reserve       before it reads a result from the store; raises beyond the limit
               ──▶ use_shared    one copy of a result for all its readers
               ──▶ use_document  a document that the process holds anyway: nothing is reserved
    middleware ──▶ release       when the response is written

Beyond the limit of its principal a read gets 429, beyond that of the process 503, and can be sent again. The response to a
start is never refused, because its client would think that no call was started: it leaves the result out instead.

Two principals that read nothing can use up the limit of the process. So `RESERVED_BYTES` more are for principals that hold
little: each may have one result, up to `GUARANTEED_BYTES`, until four others hold as much.
"""

from collections import Counter
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

from ringback.domain.call import Call
from ringback.domain.errors import QuotaExceeded, Unavailable
from ringback.domain.principal import Principal

LARGE_RESPONSE_BYTES: Final = 256 * 1024
"""Smaller responses are not counted: the limits on connections bound them."""
UNREAD_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of all responses of this process: a quarter of the memory that the deployments in `scripts/deploy` allow."""
PRINCIPAL_UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the responses to one principal: four different results of the largest size."""
GUARANTEED_BYTES: Final = 17 * 1024 * 1024
"""Of one principal, beyond the limit of the process: a result of the largest size, with the response around it."""
RESERVED_BYTES: Final = 4 * GUARANTEED_BYTES
"""Of this process, for the principals that hold no more than that: with `UNREAD_BYTES_MAX`, 196 MiB in all."""
ADDRESS_READER_PREFIX: Final = "address "
"""Of a reader that is the address of a client without a principal. Nothing is reserved for it: addresses are many."""
PARSED_COPIES: Final = 2
"""An MCP response is held as JSON and as the objects that it was made from."""
UNREAD_QUOTA: Final = "unread_response_bytes"
RETRY_AFTER_SECONDS: Final = 10
IS_CONNECTED: Final = "ringback.is_connected"
"""In the ASGI state of a request: a function that says whether its client is still connected. The HTTP server sets it, because
ASGI's own `receive` takes a turn of the event loop to say so."""
_STATE_KEY: Final = "ringback.response_memory"


class UnreadResponses:
    """The large responses that this process is sending."""

    def __init__(
        self,
        *,
        bytes_max: int = UNREAD_BYTES_MAX,
        principal_bytes_max: int = PRINCIPAL_UNREAD_BYTES_MAX,
        reserved_bytes: int = RESERVED_BYTES,
    ) -> None:
        self._bytes_max = bytes_max
        self._reserved_bytes = reserved_bytes
        self._principal_bytes_max = principal_bytes_max
        self._bytes_by_reader = Counter[str]()
        self.shared_results: dict[tuple[Principal, str], SharedResult] = {}
        """By principal and SHA-256."""
        self.unread_bytes = 0
        """Reserved for responses that are not written completely."""

    def open_response(self, state: MutableMapping[str, Any]) -> "ResponseMemory":
        """The memory of the response to one request, for its endpoint. The caller releases it."""
        memory = state[_STATE_KEY] = ResponseMemory(self)
        return memory

    def reserve_bytes(self, reader: str, count: int) -> None:
        """Raises `QuotaExceeded` or `Unavailable`, and then reserves nothing."""
        unread_bytes = self._bytes_by_reader[reader]
        if unread_bytes + count > self._principal_bytes_max:
            raise QuotaExceeded(
                f"Your connections hold {unread_bytes} bytes of responses that you have not read, and with this one it would "
                f"be more than {self._principal_bytes_max}. Read them or close the connections, then send the request again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                quota=UNREAD_QUOTA,
                limit=self._principal_bytes_max,
            )
        is_guaranteed = unread_bytes + count <= GUARANTEED_BYTES and not reader.startswith(ADDRESS_READER_PREFIX)
        if self.unread_bytes + count > self._bytes_max + (self._reserved_bytes if is_guaranteed else 0):
            raise Unavailable("Too many large responses are being read by others. Send the request again in a moment.")
        self._bytes_by_reader[reader] += count
        self.unread_bytes += count

    def release_bytes(self, reader: str, count: int) -> None:
        self.unread_bytes -= count
        self._bytes_by_reader[reader] -= count
        if not self._bytes_by_reader[reader]:
            del self._bytes_by_reader[reader]


@dataclass(slots=True)
class SharedResult:
    """A stored result in memory. Its bytes are reserved once, until the last of its responses is written."""

    body: bytes
    reader: str
    readers_count: int = 0


class ResponseMemory:
    """What one response has reserved. After `release` nothing more is reserved."""

    def __init__(self, responses: UnreadResponses) -> None:
        self._responses = responses
        self._reader: str | None = None
        self._reserved_bytes = 0
        self._shared_key: tuple[Principal, str] | None = None
        self._shared_bytes = 0
        self._is_released = False

    def reserve(self, reader: str, size: int) -> None:
        """Reserve as many bytes as are missing to `size`. Raises `QuotaExceeded` or `Unavailable`.

        `reader` is the principal, or the address of a client without one. The first one counts.
        """
        missing = size - self._reserved_bytes - self._shared_bytes
        if self._is_released or size < LARGE_RESPONSE_BYTES or missing <= 0:
            return
        self._reader = self._reader or reader
        self._responses.reserve_bytes(self._reader, missing)
        self._reserved_bytes += missing

    @contextmanager
    def reserve_for_event(self, reader: str, size: int) -> Generator[None]:
        """Reserve the bytes of one event of a stream while it is written."""
        before = self._reserved_bytes
        self.reserve(reader, size)
        try:
            yield
        finally:
            self._shrink(before)

    def find_shared(self, principal: Principal, call: Call) -> bytes | None:
        """The result of the call if another response holds it. If none does, its bytes are reserved, or this raises."""
        key = (principal, call.result_sha256 or "")
        if (shared := self._responses.shared_results.get(key)) is None:
            self.reserve(principal, call.result_bytes or 0)
            return None
        self._hold_shared(key, shared)
        return shared.body

    def use_shared(self, principal: Principal, call: Call, result: bytes) -> bytes:
        """Share the result that was read from the store. Returns the copy that all responses use."""
        if self._is_released or self._shared_key is not None or len(result) < LARGE_RESPONSE_BYTES:
            return result
        self.reserve(principal, len(result))
        key, reader = (principal, call.result_sha256 or ""), self._reader or principal
        if (shared := self._responses.shared_results.get(key)) is None:
            shared = self._responses.shared_results[key] = SharedResult(result, reader)
            self._reserved_bytes -= len(result)  # the shared result has this reservation now
        self._shrink(0)
        self._hold_shared(key, shared)
        return shared.body

    def use_document(self, document: bytes) -> None:
        """The body of the response is `document`, which the process holds as long as it runs, for all its readers.

        The response then holds no more than the piece that is being written, and is never refused.
        """
        self._shared_bytes = len(document)

    def release(self) -> None:
        """Can be repeated."""
        self._is_released = True
        self._shrink(0)
        key, self._shared_key = self._shared_key, None
        if key is None:
            return
        shared = self._responses.shared_results[key]
        shared.readers_count -= 1
        if not shared.readers_count:
            del self._responses.shared_results[key]
            self._responses.release_bytes(shared.reader, len(shared.body))

    def _hold_shared(self, key: tuple[Principal, str], shared: SharedResult) -> None:
        shared.readers_count += 1
        self._shared_key, self._shared_bytes = key, len(shared.body)

    def _shrink(self, size: int) -> None:
        if self._reader is not None and self._reserved_bytes > size:
            self._responses.release_bytes(self._reader, self._reserved_bytes - size)
            self._reserved_bytes = size


def find_response_memory(state: MutableMapping[str, Any]) -> ResponseMemory:
    """The memory of the response to this request; one without limits if the application has no such middleware."""
    return state.get(_STATE_KEY) or ResponseMemory(UnreadResponses())


def reserve_parsed_result(state: MutableMapping[str, Any], principal: Principal, call: Call) -> None:
    """Reserve an MCP response with the result of this call. Raises `QuotaExceeded` or `Unavailable`."""
    find_response_memory(state).reserve(principal, PARSED_COPIES * (call.result_bytes or 0))


def reserve_parsed_answer(state: MutableMapping[str, Any], principal: Principal, answer: Any) -> None:
    """Reserve an MCP response with this answer of an upstream. Raises `QuotaExceeded` or `Unavailable`."""
    find_response_memory(state).reserve(principal, PARSED_COPIES * _count_characters(answer))


def _count_characters(value: Any) -> int:
    """Of all texts and names in a JSON value: what is large is text."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            count += len(each)
        elif isinstance(each, dict):
            left.extend(chain.from_iterable(cast("dict[str, Any]", each).items()))
        elif isinstance(each, list):
            left.extend(cast("list[Any]", each))
    return count


def has_memory_for(state: MutableMapping[str, Any], principal: Principal, size: int) -> bool:
    """Whether `size` bytes could be reserved for the response to this request; they are reserved then."""
    try:
        find_response_memory(state).reserve(principal, size)
    except (QuotaExceeded, Unavailable):
        return False
    return True
