"""How `ringback upstreams login` gets the redirect of an authorization server: by a listener on loopback, or pasted.

    browser on this machine      http://127.0.0.1:PORT/callback/NAME?code=…&state=…   ──▶ the listener
    browser on another machine   shows that it cannot reach that address; its user copies the address  ──▶ standard input

Both are read at the same time. Only the redirect of this login counts, so neither another page nor the address of the
provider's own page, which has the same state, can end the wait.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from ringback.cli.http_connections import InvalidHttpRequest, accept_connections, encode_response, read_request
from ringback.protocol.upstream_logins import LOOPBACK_CALLBACK_PATH

REQUEST_SECONDS: Final = 10.0
"""A browser sends its request at once; other programs on this machine may connect and send nothing."""
PASTED_BYTES_MAX: Final = 64 * 1024
_READ_BYTES: Final = 4096

_PAGE: Final = (
    '<!doctype html><meta charset="utf-8"><title>Ringback</title>'
    '<meta name="color-scheme" content="light dark"><p style="font:17px system-ui;margin:15vh auto;max-width:32rem">{}</p>'
)

_PAGE_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)


class RedirectWaiter:
    """Waits for the redirect of a login: its address and state, with a code or an error."""

    def __init__(self) -> None:
        self._address = ""
        self._state: str | None = None
        self._found = asyncio.get_running_loop().create_future()

    def expect_redirect(self, authorization_url: str, redirect_uri: str) -> None:
        self._state, self._address = _read_value(authorization_url, "state"), _without_scheme(redirect_uri)

    def offer_url(self, url: str) -> bool:
        """Whether the URL is the redirect of this login."""
        if self._state is None or _read_value(url, "state") != self._state:
            return False
        if _without_scheme(url.partition("?")[0]) != self._address:
            return False
        if _read_value(url, "code") is None and _read_value(url, "error") is None:
            return False
        if not self._found.done():
            self._found.set_result(url)
        return True

    async def wait(self) -> str:
        return await self._found


@asynccontextmanager
async def listen_on_loopback(waiter: RedirectWaiter, upstream: str) -> AsyncGenerator[str]:
    """Listen on a free port of 127.0.0.1, and yield the redirect URI of the upstream."""
    path = f"{LOOPBACK_CALLBACK_PATH}/{quote(upstream, safe='')}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ValueError):  # a target that is no URL
            async with asyncio.timeout(REQUEST_SECONDS):
                target = await _read_target(reader, path)
                is_ours = target is not None and waiter.offer_url(redirect_uri.removesuffix(path) + target)
                writer.write(_make_response(is_expected=is_ours))
                await writer.drain()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        redirect_uri = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
        async with accept_connections(serve, listener, cancels_open=True):
            yield redirect_uri


async def _read_target(reader: asyncio.StreamReader, path: str) -> str | None:
    """The target of a GET request for this path; None for any other request."""
    try:
        request = await read_request(reader, body_bytes_max=0)
    except InvalidHttpRequest:
        return None
    if request is None or request.method != "GET":
        return None
    target = request.target.decode("ascii", "replace")
    return target if urlsplit(target).path == path else None


def _make_response(*, is_expected: bool) -> bytes:
    status = HTTPStatus.OK if is_expected else HTTPStatus.NOT_FOUND
    text = "Go back to the terminal: it says whether you are signed in." if is_expected else "There is nothing here."
    return encode_response(status, _PAGE_HEADERS, _PAGE.format(text).encode())


def read_pasted_lines(file_descriptor: int, offer_line: Callable[[str], None]) -> None:
    """Offer each line that the user enters to the event loop, until the end of the input.

    A thread reads, because Windows has no other way, and it reads the descriptor: the end of the process would wait for a
    thread that reads `sys.stdin`.
    """
    loop = asyncio.get_running_loop()

    def read_lines() -> None:
        line = b""
        while len(line) <= PASTED_BYTES_MAX:
            try:
                chunk = os.read(file_descriptor, _READ_BYTES)
            except OSError:
                return
            *lines, line = (line + chunk).split(b"\n")
            for each in lines if chunk else [line]:
                if each.strip() and not loop.is_closed():
                    loop.call_soon_threadsafe(offer_line, each.decode("utf-8", "replace").strip())
            if not chunk:
                return

    threading.Thread(target=read_lines, name="pasted-lines", daemon=True).start()


def _read_value(url: str, name: str) -> str | None:
    try:
        values = parse_qs(urlsplit(url).query).get(name, [])
    except ValueError:
        return None
    return values[0] if len(values) == 1 else None


def _without_scheme(url: str) -> str:
    """Browsers hide `http://`, so a person may paste the address without it."""
    return url.removeprefix("http://")
