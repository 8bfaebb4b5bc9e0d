"""Requests and responses: retries where they are safe, timeouts that fit long polling, and errors as exceptions.

A repeatable request is tried up to three times while the connection fails, a proxy cannot reach the service, or the response is
503. GET is repeatable; for other methods the caller decides, for example for a start with an idempotency key.
"""

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

import httpx
from pydantic import BaseModel, ValidationError

from ringback import __version__
from ringback.backoff import parse_retry_after
from ringback.client.arguments import check_header_value, check_json, check_timeout
from ringback.client.http_clients import HttpClients
from ringback.client.long_polls import LongPolls
from ringback.client.problems import (
    PROBLEM_MEDIA_TYPE,
    ConnectionFailed,
    InvalidArgument,
    Unavailable,
    UnexpectedAnswer,
    build_problem,
)
from ringback.client.response_limits import open_response, read_body, receive_response

M = TypeVar("M", bound=BaseModel)

RETRY_DELAYS_SECONDS: Final = (0.5, 2.0)
"""Before the second and the third attempt: long enough for a restart of the service, short enough for a waiting person."""
CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""A host that has not accepted by then is down, or a firewall drops the packets."""
RETRYABLE_ERRORS: Final = (httpx.ConnectTimeout, httpx.NetworkError, httpx.ProtocolError)
"""The errors of a service that restarts. A read timeout is not among them: a retry would only wait again."""
RETRYABLE_STATUSES: Final = frozenset({502, 503, 504, 520, 521, 522, 523, 524, 530})
"""The service cannot work now, or a proxy cannot reach it: all but 503 are a proxy's, from 520 on Cloudflare's."""
UNREAD_STATUSES: Final = frozenset({401, 403, 429, 503})
"""With these, Ringback refuses a request before it reads it. So nothing is done, which is true of one attempt and not of an
earlier one: a key may end between the two."""
EVENT_STREAM: Final = "text/event-stream"
JSON_MEDIA_TYPE: Final = "application/json"
API_PREFIX: Final = "/v1/"
_READING_METHODS: Final = frozenset({"GET", "HEAD"})
_CALL_RESOURCES: Final = frozenset({"calls", "resume"})
_MCP_ENDPOINT: Final = re.compile(r"/mcp(/[^/]*)?$")
"""The end of the URL at which a client of MCP connects: that URL is often at hand in the place of the service's."""


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
                f"{_origin(response.url)} responded with {response.status_code}, and an earlier attempt may have arrived: its "
                f"response was lost. {_advise_repetition(response.request)}"
            )
        if not response.is_success:
            raise _build_error(response)
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
                        raise _build_error(response)
                    yield response
            except httpx.RequestError as error:
                raise _build_connection_failed(request.url, error) from None

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
                    raise _build_connection_failed(httpx.URL(self.base_url), error) from None
                may_have_arrived |= not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            else:
                if pause is None or response.status_code not in RETRYABLE_STATUSES:
                    return response, may_have_arrived
                may_have_arrived |= not isinstance(_build_error(response), Unavailable)
            await self._clock.sleep(pause)

    async def _send_once(self, build_request: Callable[[httpx.AsyncClient], httpx.Request]) -> httpx.Response:
        async with self._http.use() as http:
            request, sent_at = build_request(http), self._clock.monotonic()
            response = await receive_response(http, request)
        self._long_polls.observe_proxy_timeout(response, self._clock.monotonic() - sent_at)
        return response


def parse_text(model: type[M], text: str) -> M:
    """Parse a JSON text of the event stream; raises `UnexpectedAnswer`."""
    try:
        return validate_json(model, text)
    except ValidationError:
        raise UnexpectedAnswer(
            f"The stream has an invalid event. Is the service older than this client ({__version__})?"
        ) from None


def parse_response(model: type[M], response: httpx.Response) -> M:
    """Parse a response body; raises `UnexpectedAnswer`."""
    try:
        return validate_json(model, response.content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the body"
        raise _unexpected_response(response, where) from None


def validate_json(model: type[M], text: str | bytes) -> M:
    """Parse JSON, also if it nests deeper than pydantic's parser reads: the service has limits of its own."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise error from None
        return model.model_validate(document)


def parse_object(response: httpx.Response) -> Mapping[str, Any]:
    """Parse a response body as a JSON object, without a model; raises `UnexpectedAnswer`."""
    try:
        document: Any = response.json()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _unexpected_response(response, "the body")
    return cast("Mapping[str, Any]", document)


def _unexpected_response(response: httpx.Response, where: str) -> UnexpectedAnswer:
    is_json = response.headers.get("content-type", "").startswith(JSON_MEDIA_TYPE)
    return UnexpectedAnswer(
        f"The response of {_origin(response.url)} is invalid (at {where}). "
        f"Is this the URL of a Ringback, and is it older than this client ({__version__})?",
        status=None if is_json else response.status_code,
    )


def _default_headers(api_key: str | None) -> dict[str, str]:
    headers = {"accept": JSON_MEDIA_TYPE, "user-agent": f"ringback-client/{__version__}"}
    if api_key is None:
        return headers
    return {**headers, "authorization": f"Bearer {check_header_value(api_key, what='The API key')}"}


def _build_error(response: httpx.Response) -> Exception:
    document = _problem_document(response)
    if document is None and response.status_code in RETRYABLE_STATUSES:
        return ConnectionFailed(
            f"A proxy at {_origin(response.url)} responded with {response.status_code}: it cannot reach Ringback. Is Ringback "
            f"running? {_advise_repetition(response.request)}"
        )
    if document is None and response.next_request is not None:
        return UnexpectedAnswer(
            f"{_service_url(response.url)} redirects to {_service_url(response.next_request.url)}, and the client follows no "
            "redirects. If that is the URL of your Ringback, use it.",
            status=response.status_code,
        )
    if document is None:
        url = _service_url(response.url)
        return UnexpectedAnswer(
            f"{url} responded with {response.status_code}, and not as Ringback. {_advise_service_url(url)}",
            status=response.status_code,
        )
    asked = parse_retry_after(response.headers.get("retry-after"), now=None)
    return build_problem(response.status_code, document, retry_after_seconds=asked)


def _problem_document(response: httpx.Response) -> Mapping[str, Any] | None:
    if not response.headers.get("content-type", "").startswith(PROBLEM_MEDIA_TYPE):
        return None
    if response.request.method == "HEAD":
        return {}
    try:
        document: Any = response.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None  # pyright: ignore[reportUnknownVariableType] - keys are strings


def _build_connection_failed(url: httpx.URL, error: httpx.RequestError) -> ConnectionFailed:
    origin = _origin(url)
    match error:
        case httpx.ProxyError():
            return ConnectionFailed(
                f"The proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names does not reach {origin}: {error}. Repair it, or "
                "add the host to NO_PROXY."
            )
        case httpx.ConnectError() if (tls_error := _find_tls_error(error)) is not None:
            return ConnectionFailed(f"{_explain_tls_error(origin, tls_error)} Nothing was sent.")
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return ConnectionFailed(
                f"No server responds at {origin}. Start Ringback there with 'ringback serve', "
                "or choose another URL (RINGBACK_URL)."
            )
        case httpx.TimeoutException():
            return ConnectionFailed(f"{origin} did not respond in time. {_advise_repetition(error.request)}")
        case _:
            return ConnectionFailed(
                f"The connection to {origin} broke before the response. {_advise_repetition(error.request)}"
            )


def _advise_repetition(request: httpx.Request) -> str:
    """What to do about a request whose response is missing: it may have been executed, unless it only reads."""
    if request.method in _READING_METHODS:
        return "Try again."
    is_about_call = request.url.path.rpartition(API_PREFIX)[2].partition("/")[0] in _CALL_RESOURCES
    return f"Look {'the call' if is_about_call else 'its effect'} up, or try again."


def _find_tls_error(error: BaseException) -> ssl.SSLError | None:
    cause = error.__cause__ or error.__context__
    if cause is None or isinstance(cause, ssl.SSLError):
        return cause
    return _find_tls_error(cause)


def _explain_tls_error(origin: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"The certificate of {origin} is not accepted: {error.verify_message}. Check the URL, or name the file of its "
            "authority's certificate (SSL_CERT_FILE)."
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{origin} does not speak TLS as expected ({reason}). Is its URL http:// instead of https://?"


def _service_url(url: httpx.URL) -> str:
    """The base URL of a request of the API, without a password."""
    return _origin(url) + (url.path.rpartition(API_PREFIX)[0] if API_PREFIX in url.path else "")


def _advise_service_url(url: str) -> str:
    if (endpoint := _MCP_ENDPOINT.search(url)) is not None:
        return f"Leave '{endpoint[0]}' out: the URL of the service is {url[: endpoint.start()]}"
    return "Is this the URL of a Ringback, and does a proxy reject the request?"


def _origin(url: httpx.URL) -> str:
    """Scheme, host and port, without a path or a password."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"
