"""An MCP endpoint of the service over HTTP.

What a failure says about its request:

    NoResponse       the service may have received it, or has certainly not (`may_have_arrived`); sending it again may help
    SessionUnknown   the service has not processed it, because it does not know the session
    RequestRefused   the service responded with an error; sending it again does not help
"""

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import httpx2
from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, MCP_SESSION_ID_HEADER
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from ringback import __version__
from ringback.cli.output import strip_control_characters
from ringback.domain import jsontext

RESPONSE_BYTES_MAX: Final = 17 * 1024 * 1024
"""The largest event of the service: the largest stored result (16 MiB) and the JSON-RPC around it."""
CONNECT_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 60.0
READ_SECONDS: Final = 75.0
"""The longest silence on a connection: five times the 15 s after which the service sends bytes on every stream, and more than
the 60 s for which it holds any other response. After that the service or the network is down without having closed it."""
SESSION_END_TIMEOUT_SECONDS: Final = 5.0
"""For ending the session, so that a service that does not respond does not delay the exit."""
DETAIL_LENGTH_MAX: Final = 500
RETRYABLE_STATUSES: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
"""The service is starting or stopping, or a proxy does not reach it. The request may have been started before that."""


class NoResponse(Exception):
    """The request has no response. The message is a sentence that says why."""

    def __init__(
        self, reason: str, *, may_have_arrived: bool = True, is_lost: bool = False, is_hung: bool = False
    ) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived
        self.is_lost = is_lost
        """Whether the connection broke after the request was sent."""
        self.is_hung = is_hung
        """Whether the service runs and responds to nothing; the message says what to do about it."""


class SessionUnknown(Exception):
    """The service does not know the session."""


class RequestRefused(Exception):
    """The service responded with an error."""

    def __init__(self, error: ErrorData) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Further headers of every request, sent in UTF-8. They may hold a secret."""


class EndpointLocator(Protocol):
    """Finds a service that may move: one that the bridge starts, which gets another port when its own is taken."""

    def find(self) -> EndpointConfig | None:
        """The endpoint of the running service; None if there is none."""
        ...

    async def locate(self) -> EndpointConfig:
        """The same, starting the service if there is none; raises `NoResponse` or `RequestRefused`."""
        ...

    async def wait_for_response(self, sending: Coroutine[Any, Any, httpx2.Response]) -> httpx2.Response:
        """The response, and its errors. Raises `NoResponse` early if the service responds to nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    message: JSONRPCMessage
    event_id: str


class EndpointResponse:
    """A successful response."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.session_id: str | None = response.headers.get(MCP_SESSION_ID_HEADER)

    async def read_messages(self) -> AsyncGenerator[ReceivedMessage]:
        """The messages of the body until it ends; raises `NoResponse` or `RequestRefused`."""
        try:
            if _content_type(self._response) == "text/event-stream":
                async for event in httpx2.EventSource(self._response, max_event_size=RESPONSE_BYTES_MAX):
                    if event.event == "message" and event.data:
                        yield ReceivedMessage(_parse_message(event.data), event.id)
            elif body := await _read_body(self._response):
                yield ReceivedMessage(_parse_message(body), "")
        except httpx2.SSEError as error:
            raise RequestRefused(_error(f"The response of Ringback cannot be read: {error}")) from None
        except httpx2.HTTPError as error:
            raise _lost(error) from None


class ServiceEndpoint:
    def __init__(
        self,
        config: EndpointConfig,
        transport: httpx2.AsyncBaseTransport | None = None,
        *,
        locator: EndpointLocator | None = None,
    ) -> None:
        """With a locator, every request goes where the service is then. Its key goes nowhere else."""
        self._locator = locator
        self.has_responded = False
        """Whether the service has responded to any request."""
        own_headers = {"user-agent": f"ringback-mcp/{__version__}", "accept-encoding": "identity"}
        self._http = httpx2.AsyncClient(
            transport=transport or httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None)),
            headers=[(name.encode(), value.encode()) for name, value in {**config.headers, **own_headers}.items()],
            timeout=httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, read=READ_SECONDS, pool=None),
            trust_env=False,
        )
        self._use(config)

    def _use(self, config: EndpointConfig) -> None:
        self._url = httpx2.URL(config.url)
        self.display_url = str(self._url.copy_with(userinfo=b"", query=None))
        if config.api_key:
            self._http.headers["authorization"] = f"Bearer {config.api_key}"

    async def _locate(self) -> None:
        if self._locator is not None:
            self._use(await self._locator.locate())

    async def aclose(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def post(
        self, message: JSONRPCMessage, headers: Mapping[str, str], *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[EndpointResponse]:
        """Send a message. Every failure until the end of the response is one of the module's three."""
        await self._locate()
        request = self._http.build_request(
            "POST",
            self._url.copy_merge_params(dict(query)) if query else self._url,
            headers={"accept": "application/json, text/event-stream", "content-type": "application/json", **headers},
            content=message.model_dump_json(by_alias=True, exclude_unset=True),
        )
        async with self._send(request) as response:
            yield response

    async def request(
        self, request: JSONRPCRequest, headers: Mapping[str, str], *, query: Mapping[str, str] | None = None
    ) -> tuple[JSONRPCResponse, str | None]:
        """The response to a request of the bridge's own, and the session id that came with it."""
        async with self.post(request, headers, query=query) as response, aclosing(response.read_messages()) as received:
            async for each in received:
                if isinstance(each.message, JSONRPCError):
                    raise RequestRefused(each.message.error)
                if isinstance(each.message, JSONRPCResponse):
                    return each.message, response.session_id
        raise response_ended_early()

    @asynccontextmanager
    async def open_session_stream(
        self, headers: Mapping[str, str], *, last_event_id: str
    ) -> AsyncGenerator[EndpointResponse]:
        """Open the session's own stream, after this event if there was one."""
        resumed = {LAST_EVENT_ID_HEADER: last_event_id} if last_event_id else {}
        await self._locate()
        request = self._http.build_request(
            "GET", self._url, headers={"accept": "text/event-stream", **headers, **resumed}
        )
        async with self._send(request) as response:
            yield response

    async def end_session(self, headers: Mapping[str, str]) -> None:
        """End the session; raises `httpx2.HTTPError`. A service that is gone is not started for it."""
        if self._locator is not None:
            if (config := self._locator.find()) is None:
                return
            self._use(config)
        await self._http.delete(self._url, headers=dict(headers), timeout=SESSION_END_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def _send(self, request: httpx2.Request) -> AsyncGenerator[EndpointResponse]:
        try:
            sending = self._http.send(request, stream=True)
            response = await (self._locator.wait_for_response(sending) if self._locator else sending)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise NoResponse(f"Ringback is unreachable at {self.display_url}.", may_have_arrived=False) from None
        except httpx2.HTTPError as error:
            raise _lost(error) from None
        try:
            self.has_responded |= response.status_code not in RETRYABLE_STATUSES
            if not response.is_success:
                await self._raise_failure(request, response)
            yield EndpointResponse(response)
        finally:
            await response.aclose()

    async def _raise_failure(self, request: httpx2.Request, response: httpx2.Response) -> None:
        if response.status_code == HTTPStatus.NOT_FOUND and MCP_SESSION_ID_HEADER in request.headers:
            raise SessionUnknown
        try:
            body = await _read_body(response)
        except httpx2.HTTPError as error:
            raise _lost(error) from None
        text, error = _problem_detail(body), _json_rpc_error(body)
        if response.status_code in RETRYABLE_STATUSES:
            raise NoResponse(text or _error_text(error) or f"Ringback responded with HTTP {response.status_code}.")
        if error is not None:
            raise RequestRefused(error)
        where = f" and redirects to {response.headers['location']}" if response.has_redirect_location else ""
        raise RequestRefused(
            _error(
                text or f"Ringback responded with HTTP {response.status_code}{where}. Is {self.display_url} its URL?"
            )
        )


def response_ended_early() -> NoResponse:
    return NoResponse("Ringback ended its response early.", is_lost=True)


def _lost(error: httpx2.HTTPError) -> NoResponse:
    return NoResponse(
        f"The connection to Ringback was lost before its response ({type(error).__name__}).", is_lost=True
    )


def _error(message: str) -> ErrorData:
    return ErrorData(code=CONNECTION_CLOSED, message=strip_control_characters(message)[:DETAIL_LENGTH_MAX])


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in cast("AsyncIterator[bytes]", response.aiter_bytes()):
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            raise httpx2.SSEError(f"it exceeds {RESPONSE_BYTES_MAX} bytes.")
    return bytes(body)


def _parse_message(text: str | bytes) -> JSONRPCMessage:
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        raise RequestRefused(_error("The response of Ringback is not a JSON-RPC message. Is this its URL?")) from None


def _json_rpc_error(body: bytes) -> ErrorData | None:
    try:
        message = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return None
    return message.error if isinstance(message, JSONRPCError) else None


def _error_text(error: ErrorData | None) -> str | None:
    return None if error is None else strip_control_characters(error.message)[:DETAIL_LENGTH_MAX]


def _problem_detail(body: bytes) -> str | None:
    """The detail of a problem document, which an older service and a proxy of the same host send."""
    try:
        document: Any = jsontext.loads(body)
    except ValueError:
        return None
    match document:
        case {"detail": str() as detail}:
            return strip_control_characters(detail)[:DETAIL_LENGTH_MAX]
        case _:
            return None
