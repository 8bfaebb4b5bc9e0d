"""The transport that sends access tokens.

    request ──▶ BearerTokenTransport ──▶ TokenSource: a token, or none
                    ▲   └── 401: another token ──▶ the request is sent once more ──▶ 401 ──▶ `TokenSource.explain_refusal`
                    └── 403 insufficient_scope ───────────────────────────────────────────▶ "

While a tools/call waits for a token, and once it is refused, the store says that the tool did not run
(`upstreams.dispatch_records`); before it is sent again, that it was sent.

Only requests to the origin of the upstream get a token. A redirect to another origin gets none.
"""

from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2

from ringback.domain import jsontext
from ringback.protocol.errors import TokensUnreadable
from ringback.protocol.sessions import HANDSHAKE_METHODS
from ringback.upstreams.dispatch_records import DISPATCH_RECORD, DispatchRecord
from ringback.upstreams.oauth.challenge import Refusal, parse_refusal
from ringback.upstreams.oauth.token_source import TokenSource

_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_AUTHORIZATION: Final = "authorization"
HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""A handshake of Ringback has less than 1 KB. Only a body of this size is parsed to recognise one."""


class BearerTokenTransport(httpx2.AsyncBaseTransport):
    """Adds a token to requests. After a 401, it sends the request again with another token, so the body must be in memory."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, tokens: TokenSource, *, url: str) -> None:
        self._inner = inner
        self._tokens = tokens
        self._origin = _get_origin(httpx2.URL(url))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises what `TokenSource` raises, besides the errors of the transport."""
        if _get_origin(request.url) != self._origin:
            await _record_dispatch(request)
            return await self._inner.handle_async_request(request)
        try:
            return await self._send_with_token(request)
        except TokensUnreadable:  # its tool did not run, and another node sends it
            await _record_unsent(request)
            raise

    async def _send_with_token(self, request: httpx2.Request) -> httpx2.Response:
        token = await self._tokens.get_token(on_wait=partial(_record_unsent, request))
        response = await self._send(request, token)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            token, response = await self._send_again(request, token, response)
        if response.status_code in _REFUSALS:
            await self._raise_refusal(request, response, token)
        return response

    async def _send_again(
        self, request: httpx2.Request, refused: str | None, response: httpx2.Response
    ) -> tuple[str | None, httpx2.Response]:
        """Send the request with another token, if there is one; returns the last token and the last response."""
        try:
            if refused is None and await self._tokens.read_version() is None:
                return refused, response
            refusal = await _parse_refusal(request, response)
            token = await self._tokens.get_token(
                other_than=refused, refusal=refusal, on_wait=partial(_record_unsent, request)
            )
        except BaseException:
            await response.aclose()
            raise
        if token == refused:
            return token, response
        await response.aclose()
        return token, await self._send(request, token)

    async def _raise_refusal(self, request: httpx2.Request, response: httpx2.Response, token: str | None) -> None:
        try:
            refusal = await _parse_refusal(request, response)
            if refusal.requires_scope or refusal.status_code == HTTPStatus.UNAUTHORIZED:
                await _record_unsent(request)
            failure = await self._tokens.explain_refusal(refusal, token=token)
        except BaseException:
            await response.aclose()
            raise
        if failure is not None:
            await response.aclose()
            raise failure

    async def _send(self, request: httpx2.Request, token: str | None) -> httpx2.Response:
        if token is not None:
            request.headers[_AUTHORIZATION] = f"Bearer {token}"
        elif _AUTHORIZATION in request.headers:
            del request.headers[_AUTHORIZATION]
        await _record_dispatch(request)
        return await self._inner.handle_async_request(request)


async def _record_unsent(request: httpx2.Request) -> None:
    if (record := _get_record(request)) is not None:
        await record.record_unsent()


async def _record_dispatch(request: httpx2.Request) -> None:
    if (record := _get_record(request)) is not None:
        await record.record_dispatch()


def _get_record(request: httpx2.Request) -> DispatchRecord | None:
    return request.extensions.get(DISPATCH_RECORD)


async def _parse_refusal(request: httpx2.Request, response: httpx2.Response) -> Refusal:
    refusal = parse_refusal(response.status_code, response.headers.get_list("www-authenticate"))
    return replace(refusal, is_handshake=_is_handshake(await request.aread()))


def _is_handshake(body: bytes) -> bool:
    if not 0 < len(body) <= HANDSHAKE_BYTES_MAX:
        return False
    message: Any = jsontext.loads(body)
    return isinstance(message, dict) and cast("dict[str, Any]", message).get("method") in HANDSHAKE_METHODS


def _get_origin(url: httpx2.URL) -> tuple[str, bytes, int | None]:
    return url.scheme, url.raw_host.lower(), url.port or _DEFAULT_PORTS.get(url.scheme)
