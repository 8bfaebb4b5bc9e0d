"""Sends a tools/call again that was refused because of too many requests (HTTP 429), by the upstream or a proxy before it.

    tools/call ──▶ 429 ──▶ recorded as unsent ──▶ pause: Retry-After, or a growing one ──▶ recorded as sent ──▶ tools/call

The pause may take an hour, in which other calls run in the place of this one (`DispatchRecord.wait_unsent`).

A 429 says that the request was not processed, so its tool has not run. A 502, 503 or 504 does not, even with Retry-After: a
proxy returns it, too, when the connection broke off on which it had passed the request on. The end of the call ends its pauses.
"""

import logging
from http import HTTPStatus
from typing import Final

import httpx2

from ringback.backoff import Backoff, parse_retry_after
from ringback.domain.clock import Clock
from ringback.protocol.http_failures import REFUSAL_BYTES_MAX, read_bounded
from ringback.protocol.transport_errors import RESULT_BYTES_MAX
from ringback.upstreams.dispatch_records import DISPATCH_RECORD, DispatchRecord

log = logging.getLogger(__name__)

THROTTLE_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
"""The shortest pause after so many refusals in a row: calls that all wait for one Retry-After would be refused again."""
RETRY_AFTER_SECONDS_MAX: Final = 60 * 60.0
"""The longest pause: a quota of a day may be raised meanwhile."""
_JSON_RPC: Final = b'"jsonrpc"'


class ThrottledCallTransport(httpx2.AsyncBaseTransport):
    """Only a tools/call has a `DispatchRecord`; other requests are passed on. The body of a call must be in memory."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        record: DispatchRecord | None = request.extensions.get(DISPATCH_RECORD)
        refusals = 0
        while True:
            response = await self._inner.handle_async_request(request)
            if record is None or response.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                return response
            asked = parse_retry_after(response.headers.get("retry-after"), now=self._clock.wall_time())
            try:
                body = await _read_refusal(response)
            finally:
                await response.aclose()
            if asked is None and _JSON_RPC in body:  # an error of the server itself
                return httpx2.Response(response.status_code, headers=response.headers, content=body)
            refusals += 1
            pause_seconds = max(min(asked or 0.0, RETRY_AFTER_SECONDS_MAX), THROTTLE_BACKOFF.pause_seconds(refusals))
            log.info("upstream.throttled", extra={"refusals": refusals, "seconds": pause_seconds})
            await record.record_unsent()
            await record.wait_unsent(pause_seconds)


async def _read_refusal(response: httpx2.Response) -> bytes:
    """The body, if it may be an error of the server itself: any JSON, and a short text. Else it is the page of a proxy."""
    is_json = response.headers.get("content-type", "").lower().startswith("application/json")
    body = await read_bounded(response, RESULT_BYTES_MAX if is_json else REFUSAL_BYTES_MAX)
    return body or (_JSON_RPC if is_json and body is None else b"")
