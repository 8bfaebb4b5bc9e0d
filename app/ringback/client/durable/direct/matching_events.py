"""The event stream of one request without the responses to other requests: the SDK (2.3.0) takes any response for its own."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId

from ringback.protocol.transport_errors import EVENT_BYTES_MAX

_LINE_END: Final = rb"(?:\r\n|\r(?!\n)|\n)"
_EVENT_END: Final = re.compile(_LINE_END + _LINE_END)
_LINE_ENDS_BYTES_MAX: Final = 4


class MatchingEvents(httpx2.AsyncByteStream):
    """Leaves out each response to another request, and yields `replacement` in its place.

    An event that is larger than the SDK accepts passes unread: the SDK refuses it.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, request_id: RequestId, *, replacement: bytes = b"") -> None:
        self._stream = stream
        self._request_id = request_id
        self._replacement = replacement

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pending, searched = bytearray(), 0
        async for chunk in self._stream:
            pending += chunk
            while (end := _EVENT_END.search(pending, searched)) is not None:
                yield self._check_event(bytes(pending[: end.end()]))
                del pending[: end.end()]
                searched = 0
            searched = max(0, len(pending) - _LINE_ENDS_BYTES_MAX)
            if len(pending) > EVENT_BYTES_MAX:
                yield bytes(pending)
                pending, searched = bytearray(), 0
        yield bytes(pending)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _check_event(self, event: bytes) -> bytes:
        lines = (line.removeprefix(b"data:") for line in event.splitlines() if line.startswith(b"data:"))
        message = parse_object(b"\n".join(lines))
        is_foreign = message is not None and "method" not in message and answers_another(message, self._request_id)
        return self._replacement if is_foreign else event


def answers_another(message: dict[str, Any], request_id: RequestId) -> bool:
    """Whether the response names another request. An error without an id may be the response to any."""
    answered: Any = message.get("id")
    return isinstance(answered, int | str) and coerce_request_id(answered) != coerce_request_id(request_id)


def parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None
