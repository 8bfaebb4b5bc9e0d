"""Large results that were decoded where they came in, handed past the SDK, which would decode them once more.

The SDK's models try each form of a message in turn: 0.6 s for a list of 8 MiB (measured), in which nobody else gets a turn. It
is given an empty result instead, and the dispatcher puts the real one in its place.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCResponse, RequestId

from ringback.domain import jsontext

LARGE_BYTES: Final = 256 * 1024
"""What is smaller costs the SDK less than 20 ms."""


class LargeResults:
    """Those of one link, by the ids of its requests."""

    def __init__(self) -> None:
        self._expected: set[RequestId] = set()
        self._results: dict[RequestId, dict[str, Any]] = {}

    @contextmanager
    def expect_response(self, request_id: RequestId) -> Generator[None]:
        """While somebody waits for the answer. Nothing of it is kept afterwards."""
        key = coerce_request_id(request_id)
        self._expected.add(key)
        try:
            yield
        finally:
            self._expected.discard(key)
            self._results.pop(key, None)

    def put_result(self, response: JSONRPCResponse) -> bool:
        """Keep its result; False if nobody waits for it."""
        key = coerce_request_id(response.id)
        if key not in self._expected:
            return False
        self._results[key] = response.result
        return True

    @staticmethod
    def encode_placeholder(response: JSONRPCResponse) -> bytes:
        return jsontext.dumps({"jsonrpc": "2.0", "id": response.id, "result": {}})

    def pop_result(self, request_id: RequestId | None) -> dict[str, Any] | None:
        return None if request_id is None else self._results.pop(coerce_request_id(request_id), None)
