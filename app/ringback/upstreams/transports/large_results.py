"""Passes large decoded results around the SDK, which would decode them again.

The SDK's models try each form of a message in turn: 0.6 s for a list of 8 MiB (measured), during which the event loop is
blocked. The SDK gets an empty result instead, and the dispatcher replaces it by the real one.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCResponse, RequestId

from ringback.domain import jsontext

LARGE_BYTES: Final = 256 * 1024
"""The SDK decodes a smaller result in less than 20 ms."""


class LargeResults:
    """The large results of one session, by request id."""

    def __init__(self) -> None:
        self._expected: set[RequestId] = set()
        self._results: dict[RequestId, dict[str, Any]] = {}

    @contextmanager
    def expect_response(self, request_id: RequestId) -> Generator[None]:
        """Accept a result for the request while entered, and discard it afterwards."""
        key = coerce_request_id(request_id)
        self._expected.add(key)
        try:
            yield
        finally:
            self._expected.discard(key)
            self._results.pop(key, None)

    def put_result(self, response: JSONRPCResponse) -> bool:
        """Keep the result; False if no request expects it."""
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
