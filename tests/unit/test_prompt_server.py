"""The server of tests ends like uvicorn's: requests in progress get their responses, within limits."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import httpx
import uvicorn

from tests.support.limits import WAIT_SECONDS
from tests.support.prompt_server import PromptServer
from tests.support.upstreams import Receive, Scope, Send, bind_socket, send_response


class HeldApp:
    """An application whose responses wait for the test."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        await send_response(send, 200, "text/plain", b"done")


@asynccontextmanager
async def stopping_server(
    app: HeldApp, *, grace_seconds: float
) -> AsyncGenerator[tuple[asyncio.Task[None], asyncio.Task[httpx.Response]]]:
    """A server that is stopped while it handles a request, and the request."""
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="off")
    server = PromptServer(config, grace_seconds=grace_seconds)
    listening = bind_socket(0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client, asyncio.timeout(WAIT_SECONDS):
        request = asyncio.create_task(client.get(url))
        await app.entered.wait()
        server.stop()
        yield serving, request


async def test_a_request_in_progress_gets_its_response_before_the_server_ends() -> None:
    app = HeldApp()
    async with stopping_server(app, grace_seconds=WAIT_SECONDS) as (serving, request):
        app.release.set()
        await serving

        assert (await request).text == "done"
        assert not app.was_cancelled


async def test_a_request_that_outlives_the_grace_is_cancelled() -> None:
    app = HeldApp()
    async with stopping_server(app, grace_seconds=0.0) as (serving, request):
        await serving
        with suppress(httpx.TransportError):
            await request

        assert app.was_cancelled
