"""A client of the server under test: JSON-RPC over streamable HTTP, in both eras, without an SDK.

The checks need what an SDK hides: fields that it drops, comments on a stream, the JSON type of an id.
"""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Any, Final

import httpx

from ringback import __version__
from ringback.cli.server_checks.message_stream import BODY_LENGTH_MAX, Json, MessageStream, Reply, StreamFrame
from ringback.cli.server_checks.sse import SseFrame, SseParser, StreamTooLong

MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
EVENTS_EXTENSION: Final = "io.modelcontextprotocol/events"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
CLIENT_INFO: Final[Json] = {"name": "ringback-check-server", "version": __version__}
ACCEPT: Final = {"accept": "application/json, text/event-stream"}
REPLY_SECONDS: Final = 45.0
"""For one response and its body. A subscribe waits for the callback's verification, which takes seconds."""
RESPONSE_BYTES_MAX: Final = 8 * 1024 * 1024
"""A page of 100 events of 64 KiB each, with room. A stream that stays open has no more either."""


class Era(StrEnum):
    MODERN = "modern"
    """2026-07-28: each request names its protocol and its client."""
    LEGACY = "legacy"
    """2025-11-25 and earlier: a session that `initialize` opens."""


class McpConnection:
    def __init__(
        self, http: httpx.AsyncClient, url: str, *, credentials: Mapping[str, str], reply_seconds: float = REPLY_SECONDS
    ) -> None:
        self._http = http
        self._reply_seconds = reply_seconds
        self.url = url
        self._credentials = dict(credentials)
        self._headers = {**ACCEPT, **credentials}
        self._session: dict[str, str] = {}
        self._ids = itertools.count(1)
        self.era = Era.MODERN

    async def discover(self) -> Reply:
        """The modern handshake."""
        return await self.request("server/discover", {}, era=Era.MODERN)

    async def initialize(self) -> Reply:
        """The legacy handshake. Later legacy requests use its session, and that of an earlier handshake ends."""
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
        await self.close()
        self._session = {}
        reply, headers = await self._send(self._build("initialize", params, Era.LEGACY))
        if reply.has_result:
            self._session = {"mcp-protocol-version": reply.result.get("protocolVersion", LEGACY_VERSION)}
            if session := headers.get("mcp-session-id"):
                self._session["mcp-session-id"] = session
            await self._notify("notifications/initialized")
        return reply

    async def request(self, method: str, params: Mapping[str, Any], *, era: Era | None = None) -> Reply:
        """Send a request and read its response. Raises `httpx.HTTPError`."""
        reply, _ = await self._send(self._build(method, params, era or self.era))
        return reply

    @asynccontextmanager
    async def open_stream(
        self, method: str, params: Mapping[str, Any], *, request_id: int | str | None = None
    ) -> AsyncGenerator[MessageStream]:
        """Send a request and collect the frames of its response. At the end of the context the connection is closed."""
        request = self._build(method, params, self.era, request_id=request_id)
        stream = MessageStream(json.loads(request.content)["id"], asyncio.get_running_loop().time())
        reading = asyncio.create_task(self._read_stream(request, stream))
        try:
            yield stream
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    @property
    def has_credentials(self) -> bool:
        return bool(self._credentials)

    def without_credentials(self) -> "McpConnection":
        """The same server for a client that has no credentials."""
        anonymous = McpConnection(self._http, self.url, credentials={}, reply_seconds=self._reply_seconds)
        anonymous.era = self.era
        anonymous._session = self._session
        return anonymous

    async def close(self) -> None:
        if "mcp-session-id" in self._session:
            with suppress(httpx.HTTPError):
                await self._send_unread(
                    self._http.build_request("DELETE", self.url, headers={**self._headers, **self._session})
                )

    def _build(
        self, method: str, params: Mapping[str, Any], era: Era, *, request_id: int | str | None = None
    ) -> httpx.Request:
        body: Json = {"jsonrpc": "2.0", "id": next(self._ids) if request_id is None else request_id, "method": method}
        if era is Era.LEGACY:
            return self._post({**body, "params": dict(params)}, self._session)
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": method}
        if method == "tools/call":
            headers["mcp-name"] = _encode_header_value(str(params["name"]))
        return self._post({**body, "params": {**params, "_meta": meta}}, headers)

    def _post(self, body: Json, headers: Mapping[str, str]) -> httpx.Request:
        return self._http.build_request("POST", self.url, json=body, headers={**self._headers, **headers})

    async def _notify(self, method: str) -> None:
        await self._send_unread(self._post({"jsonrpc": "2.0", "method": method}, self._session))

    async def _send_unread(self, request: httpx.Request) -> None:
        """Send a request whose response has no body that matters, so that an endless one is not read."""
        async with self._limit_time(request):
            await (await self._http.send(request, stream=True)).aclose()

    async def _send(self, request: httpx.Request) -> tuple[Reply, httpx.Headers]:
        stream = MessageStream(json.loads(request.content)["id"], 0.0)
        async with self._limit_time(request):
            status, body, headers = await self._read_response(request, stream, stops_at_reply=True)
        replies = [frame.message for frame in stream.frames if frame.message and "method" not in frame.message]
        return Reply(status=status, body=body, message=replies[-1] if replies else None), headers

    @asynccontextmanager
    async def _limit_time(self, request: httpx.Request) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._reply_seconds):
                yield
        except TimeoutError:
            late = f"no complete response within {self._reply_seconds:g} s"
            raise httpx.ReadTimeout(late, request=request) from None

    async def _read_stream(self, request: httpx.Request, stream: MessageStream) -> None:
        ending = ""
        try:
            status, body, _ = await self._read_response(request, stream, stops_at_reply=False)
            ending = Reply(status=status, body=body, message=None).describe()
        except (httpx.HTTPError, StreamTooLong) as error:
            ending = f"{type(error).__name__}: {error}"
        finally:
            stream.end(ending)

    async def _read_response(
        self, request: httpx.Request, stream: MessageStream, *, stops_at_reply: bool
    ) -> tuple[int, str, httpx.Headers]:
        """Read JSON or server-sent events into the stream."""
        response = await self._http.send(request, stream=True)
        try:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                body = await _read_bounded(response)
                stream.add_sse_frame(SseFrame(body))
                return response.status_code, body[:BODY_LENGTH_MAX], response.headers
            parser, size = SseParser(), 0
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > RESPONSE_BYTES_MAX:
                    raise StreamTooLong(f"the stream has more than {RESPONSE_BYTES_MAX} bytes")
                known = len(stream.frames)
                for frame in parser.feed(chunk):
                    stream.add_sse_frame(frame)
                if stops_at_reply and any(_is_reply(frame, stream.request_id) for frame in stream.frames[known:]):
                    break
            return response.status_code, "", response.headers
        finally:
            await response.aclose()


def _encode_header_value(text: str) -> str:
    """As 2026-07-28 has it: what is no plain ASCII goes in base64."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _is_reply(frame: StreamFrame, request_id: int | str) -> bool:
    return frame.message is not None and "method" not in frame.message and frame.message.get("id") == request_id


async def _read_bounded(response: httpx.Response) -> str:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            raise httpx.DecodingError(
                f"The response has more than {RESPONSE_BYTES_MAX} bytes.", request=response.request
            )
    return body.decode("utf-8", "replace")
