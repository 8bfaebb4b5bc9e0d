"""A test's service behind a real HTTP server, for tests of streams."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Final

from fastapi import FastAPI

from ringback.http_server import HttpLimits
from ringback.server import LAST_RESPONSES_SECONDS, build_http_server
from tests.support.prompt_server import PromptServer

LOOPBACK_LIMITS: Final = HttpLimits(connections_max=20_000, trusted_proxies=(ip_network("127.0.0.0/8"),))
"""All clients of a test have one address, and some tests have ten thousand."""


@asynccontextmanager
async def serving_api(api: FastAPI, *, limits: HttpLimits = LOOPBACK_LIMITS) -> AsyncGenerator[str]:
    """Serve the service and return its URL; at the end of the context it stops as the command does."""
    # asyncio sends at once (TCP_NODELAY) only on sockets that were made for TCP by name: create_server's wait 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        server = PromptServer(build_http_server(api, limits=limits).config, grace_seconds=LAST_RESPONSES_SECONDS)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            await task
