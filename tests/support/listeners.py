"""The end of a server on a real socket."""

import asyncio
from typing import Final

ACCEPTING_TURNS: Final = 5
"""Turns of the event loop until an accepted connection is in the hands of its server."""


async def stop_listening(*servers: asyncio.Server) -> None:
    """Accept no more connections, and hand those over that are being accepted, as of a client that gave up early.

    asyncio forgets them if it closes the server meanwhile. They stay open, and fail the test that runs when they are collected.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    for _ in range(ACCEPTING_TURNS):
        await asyncio.sleep(0)
    for server in servers:
        server.close()
