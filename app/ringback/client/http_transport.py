"""Requests: retries where they are safe, timeouts that fit long polling, and errors as exceptions (`responses`).

A repeatable request is tried up to three times while the connection fails, a proxy cannot reach the service, or the response is
503. GET is repeatable; for other methods the caller decides, for example for a start with an idempotency key.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import httpx
from pydantic import BaseModel

from ringback import __version__
from ringback.client.arguments import check_header_value, check_json, check_timeout
from ringback.client.http_clients import HttpClients
from ringback.client.long_polls import LongPolls
from ringback.client.problems import ConnectionFailed, InvalidArgument, Unavailable
from ringback.client.response_limits import open_response, read_body, receive_response
from ringback.client.responses import (
    API_PREFIX,
    JSON_MEDIA_TYPE,
    RETRYABLE_STATUSES,
    advise_repetition,
    build_connection_failed,
    build_error,
    find_origin,
    parse_response,
)

M = TypeVar("M", bound=BaseModel)

RETRY_DELAYS_SECONDS: Final = (0.5, 2.0)
"""Before the second and the third attempt: long enough for a restart of the service, short enough for a waiting person."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""A host that has not accepted by then is down, or a firewall drops the packets."""
RETRYABLE_ERRORS: Final = (httpx.ConnectTimeout, httpx.NetworkError, httpx.ProtocolError)
"""The errors of a service that restarts. A read timeout is not among them: a retry would only wait again."""
UNREAD_STATUSES: Final = frozenset({401, 403, 429, 503})
"""With these, Ringback refuses a request before it reads it. So nothing is done, which is true of one attempt and not of an
earlier one: a key may end between the two."""
EVENT_STREAM: Final = "text/event-stream"


class ClientClock(Protocol):
    """The client's clock, which tests replace."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClientClock:
    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class HttpTransport:
    """Sends requests to one service. Does not close the httpx client."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None,
        http: HttpClients,
        timeout_seconds: float,
        clock: ClientClock,
        principal: str | None = None,
    ) -> None:
        """With `principal`, every request of the API names it, unless its method names another: the key is an operator's."""
        self.base_url = base_url
        self._principal_params = {} if principal is None else {"principal": principal}
        self._headers = _default_headers(api_key)
        self._http = http
        self._timeout_seconds = check_timeout(timeout_seconds, "timeout_seconds")
        self._clock = clock
        self._long_polls = LongPolls()

    async def send_request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float | None = None,
        repeatable: bool | None = None,
        uncertain_statuses: Collection[int] = UNREAD_STATUSES,
    ) -> httpx.Response:
        """Send a request and return a successful response.

        Raises `ConnectionFailed`, `UnexpectedAnswer` or a `Problem`, and `InvalidArgument` for a body that is not JSON.

        `wait_seconds` is the wait that the request asks of the service; it is added to the read timeout (`response_limits`).
        `uncertain_statuses` do not say whether the service has executed an earlier attempt.
        """
        first_at: float | None = None

        def build_request(longest_seconds: float | None, http: httpx.AsyncClient) -> httpx.Request:
            nonlocal first_at
            remaining_seconds = longest_seconds
            if first_at is None:
                first_at = self._clock.monotonic()
            elif longest_seconds:  # a retry asks for what is left of the wait
                remaining_seconds = max(0.0, longest_seconds - (self._clock.monotonic() - first_at))
            try:
                return self._build_request(
                    http,
                    method,
                    path,
                    params=self._long_polls.with_allowed_wait(params, remaining_seconds),
                    json=self._long_polls.with_allowed_wait(body, remaining_seconds),
                    headers=headers or {},
                    timeout=httpx.Timeout(
                        self._timeout_seconds + (wait_seconds or 0.0), connect=CONNECT_TIMEOUT_SECONDS
                    ),
                )
            except (TypeError, ValueError, RecursionError):
                check_json(body or {})  # names the member that cannot be sent
                raise

        may_repeat = method == "GET" if repeatable is None else repeatable
        async with self._long_polls.hold_place(wait_seconds) as remaining_seconds:
            response, may_have_arrived = await self._send_with_retries(
                partial(build_request, remaining_seconds), RETRY_DELAYS_SECONDS if may_repeat else ()
            )
        if may_have_arrived and method != "GET" and response.status_code in uncertain_statuses:
            raise ConnectionFailed(
                f"{find_origin(response.url)} responded with {response.status_code}, and an earlier attempt may have arrived: "
                f"its response was lost. {advise_repetition(response.request)}"
            )
        if not response.is_success:
            raise build_error(response)
        return response

    async def fetch_model(self, model: type[M], method: str, path: str, **options: Any) -> M:
        """Send a request and parse the response."""
        return parse_response(model, await self.send_request(method, path, **options))

    @asynccontextmanager
    async def open_stream(
        self, path: str, *, params: Mapping[str, Any], headers: Mapping[str, str], silence_seconds: float
    ) -> AsyncGenerator[httpx.Response]:
        """Open a stream of server-sent events.

        Raises as `send_request` does, and `ConnectionFailed` after `silence_seconds` without a byte.
        """
        async with self._http.use() as http:
            request = self._build_request(
                http,
                "GET",
                path,
                params=params,
                headers={"accept": EVENT_STREAM, **headers},
                timeout=httpx.Timeout(self._timeout_seconds, connect=CONNECT_TIMEOUT_SECONDS, read=silence_seconds),
            )
            try:
                response = await open_response(http, request)
                async with aclosing(response):
                    if not response.is_success or not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                        await read_body(response)
                        raise build_error(response)
                    yield response
            except httpx.RequestError as error:
                raise build_connection_failed(request.url, error) from None

    def _build_request(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout: httpx.Timeout,
        json: Any = None,
    ) -> httpx.Request:
        """Raises `InvalidArgument` if the URL would be longer than httpx admits."""
        try:
            return http.build_request(
                method,
                self.base_url + path,
                params=self._with_principal(path, params),
                json=json,
                headers={**self._headers, **headers},
                timeout=timeout,
            )
        except httpx.InvalidURL as error:
            raise InvalidArgument(f"One of the arguments is too long ({error}). Nothing was sent.") from None

    def _with_principal(self, path: str, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return {**self._principal_params, **(params or {})} if path.startswith(API_PREFIX) else params

    async def _send_with_retries(
        self, build_request: Callable[[httpx.AsyncClient], httpx.Request], pauses: tuple[float, ...]
    ) -> tuple[httpx.Response, bool]:
        """The last response, and whether the service may have executed an attempt before it."""
        remaining_pauses = iter(pauses)
        may_have_arrived = False
        while True:
            pause = next(remaining_pauses, None)
            try:
                response = await self._send_once(build_request)
            except httpx.RequestError as error:
                if pause is None or not isinstance(error, RETRYABLE_ERRORS):
                    raise build_connection_failed(httpx.URL(self.base_url), error) from None
                may_have_arrived |= not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            else:
                if pause is None or response.status_code not in RETRYABLE_STATUSES:
                    return response, may_have_arrived
                may_have_arrived |= not isinstance(build_error(response), Unavailable)
            await self._clock.sleep(pause)

    async def _send_once(self, build_request: Callable[[httpx.AsyncClient], httpx.Request]) -> httpx.Response:
        async with self._http.use() as http:
            request, sent_at = build_request(http), self._clock.monotonic()
            response = await receive_response(http, request)
        self._long_polls.observe_proxy_timeout(response, self._clock.monotonic() - sent_at)
        return response


def _default_headers(api_key: str | None) -> dict[str, str]:
    headers = {"accept": JSON_MEDIA_TYPE, "user-agent": f"ringback-client/{__version__}"}
    if api_key is None:
        return headers
    return {**headers, "authorization": f"Bearer {check_header_value(api_key, what='The API key')}"}
