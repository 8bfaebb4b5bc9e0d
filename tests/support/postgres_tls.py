"""A server of PostgreSQL behind TLS: the programs of the tests' own server have none.

async with serving_tls(context, server_port) as port: ...     context = that of a server with a certificate
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

SSL_REQUEST_BYTES: Final = 8
CHUNK_BYTES: Final = 64 * 1024


@asynccontextmanager
async def serving_tls(context: ssl.SSLContext, server_port: int) -> AsyncGenerator[int]:
    """The port at which each connection becomes TLS as PostgreSQL's do, and goes on to the server without it."""

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(SSL_REQUEST_BYTES)
            writer.write(b"S")
            await writer.start_tls(context)
            from_server, to_server = await asyncio.open_connection("127.0.0.1", server_port)
            async with asyncio.TaskGroup() as group:
                group.create_task(_forward(reader, to_server))
                group.create_task(_forward(from_server, writer))
        writer.close()

    server = await asyncio.start_server(serve_client, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
