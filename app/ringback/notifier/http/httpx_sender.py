"""A sender over a given httpx transport: respx and MockTransport in tests, an ASGI receiver, an egress of the user's own.

The transport connects by itself, so the guard does not check addresses; `parse_target` has checked the URL. Limits, headers
and categories equal those of the production sender.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import httpx

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.clock import Clock
from ringback.domain.delivery import AttemptResult
from ringback.domain.principal import Principal
from ringback.notifier.http.failures import result_from_error
from ringback.notifier.http.sender import (
    BODY_PREFIX_BYTES_MAX,
    CONNECT_SECONDS,
    BaseSender,
    RequestMethod,
    read_body_prefix,
    result_from_response,
)
from ringback.notifier.http.target import Target

_BROKEN_BODY_ERRORS: Final = (httpx.HTTPError, OSError)


class HttpxSender(BaseSender):
    def __init__(self, transport: httpx.AsyncBaseTransport, *, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def exchange_request(
        self,
        method: RequestMethod,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal,  # noqa: ARG002 - the transport resolves names without limits for each principal
        deadline_seconds: float,
    ) -> tuple[AttemptResult, bytes]:
        request = _build_request(method, target, headers, body)
        until = asyncio.get_running_loop().time() + deadline_seconds
        try:
            async with asyncio.timeout_at(until):
                response = await self._transport.handle_async_request(request)
        except httpx.TimeoutException as error:
            return AttemptResult(category=_timeout_category(error)), b""
        except _BROKEN_BODY_ERRORS as error:
            return _result_from_transport_error(error), b""
        return await self._read_response(response, until)

    async def _read_response(self, response: httpx.Response, until: float) -> tuple[AttemptResult, bytes]:
        stream = _raw_body_stream(response)
        try:
            body_prefix = await read_body_prefix(
                stream, until=until, broken_body_errors=_BROKEN_BODY_ERRORS, bytes_max=BODY_PREFIX_BYTES_MAX
            )
        finally:
            await response.aclose()
        return result_from_response(
            response.status_code,
            retry_after=response.headers.get("retry-after"),
            location=response.headers.get("location"),
            body_prefix=body_prefix,
            now=self._clock.wall_time(),
        ), body_prefix


def _timeout_category(error: httpx.TimeoutException) -> AttemptCategory:
    match error:
        case httpx.ConnectTimeout():
            return AttemptCategory.CONNECT_TIMEOUT
        case httpx.ReadTimeout():
            return AttemptCategory.RESPONSE_TIMEOUT
        case httpx.WriteTimeout():
            return AttemptCategory.BODY_NOT_READ
        case _:
            return AttemptCategory.TIMEOUT


def _result_from_transport_error(error: Exception) -> AttemptResult:
    result = result_from_error(error)
    if isinstance(error, httpx.ConnectError) and result.category is AttemptCategory.CONNECTION_BROKEN:
        return replace(result, category=AttemptCategory.CONNECTION_REFUSED)  # the transport gives no cause
    return result


def _build_request(method: RequestMethod, target: Target, headers: Mapping[str, str], body: bytes) -> httpx.Request:
    """The `target` extension keeps the path byte for byte with httpx's own transports; httpx.URL would normalise it.

    Reads and writes have no timeout here: the attempt's deadline covers them.
    """
    return httpx.Request(
        method,
        target.request_url,
        headers=headers,
        content=body,
        extensions={"target": target.path.encode("ascii"), "timeout": {"connect": CONNECT_SECONDS}},
    )


def _raw_body_stream(response: httpx.Response) -> httpx.AsyncByteStream:
    """The body as received, neither decompressed nor cached; `aiter_raw` refuses responses that respx has already read."""
    if not isinstance(response.stream, httpx.AsyncByteStream):
        raise TypeError("The given transport returned a stream that cannot be read asynchronously.")
    return response.stream
