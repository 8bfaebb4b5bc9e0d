"""Slows an upstream down whose event stream is read more slowly than it sends: its response waits for the reader."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId


class PacedStreams:
    """The requests of one session whose responses wait for their readers."""

    def __init__(self) -> None:
        self._waits: dict[RequestId, Callable[[], Awaitable[None]]] = {}

    @contextmanager
    def pace(self, request_id: RequestId, wait_for_space: Callable[[], Awaitable[None]]) -> Generator[None]:
        """Await `wait_for_space` before each notification on the response to this request."""
        key = coerce_request_id(request_id)
        self._waits[key] = wait_for_space
        try:
            yield
        finally:
            del self._waits[key]

    def is_paced(self, request_id: RequestId | None) -> bool:
        return bool(self._waits) and request_id is not None and coerce_request_id(request_id) in self._waits

    async def wait_for_space(self, request_id: RequestId | None) -> None:
        """Return at once for a request that is not paced."""
        if request_id is not None and (wait := self._waits.get(coerce_request_id(request_id))) is not None:
            await wait()
