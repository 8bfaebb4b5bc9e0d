"""Hostile clients without a key: slow headers, endless headers, unread responses.

Each kind has its own loopback address, as hostile clients have their own addresses.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, cast

SLOW, FLOODING, UNREAD = "slow_connections", "flooding_connections", "unread_answers"
SOURCES: Final = {SLOW: "127.0.0.2", FLOODING: "127.0.0.3", UNREAD: "127.0.0.4"}
SLOW_CONNECTIONS: Final = 300
"""More than the limit of a peer, so that some are rejected."""
FLOODING_CONNECTIONS: Final = 10
UNREAD_CONNECTIONS: Final = 20
PAUSE_SECONDS: Final = 1.0
CHUNK: Final = b"x-header: " + b"y" * 8000 + b"\r\n"
FLOOD_BYTES_PER_SECOND: Final = 500_000
"""Of each flooding connection, so that the run does not measure how fast the clients can write."""
RECEIVE_BYTES: Final = 4096
PIPELINED_REQUESTS: Final = 8
PIPELINED: Final = b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * PIPELINED_REQUESTS

ConnectionScript = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Counter[str]], Awaitable[None]]


async def run_hostile_connections(kind: str, port: int, done: Counter[str]) -> None:
    """Keep all connections of this kind open until cancelled; reopen one that the service closes."""
    talk, count = KINDS[kind]
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(repeat_connections(SOURCES[kind], port, talk, done))


async def repeat_connections(source: str, port: int, talk: ConnectionScript, done: Counter[str]) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        except OSError:
            done["refused"] += 1
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        done["opened"] += 1
        try:
            await talk(reader, writer, done)
        except OSError:
            pass
        finally:
            done["closed"] += 1
            writer.transport.abort()
        await asyncio.sleep(PAUSE_SECONDS)


async def send_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Counter[str]) -> None:
    """Send one byte of a header a second."""
    writer.write(b"GET /v1/calls HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ")
    while not (reader.at_eof() or writer.is_closing()):
        writer.write(b"s")
        await writer.drain()
        done["bytes"] += 1
        await asyncio.sleep(PAUSE_SECONDS)


async def send_endlessly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Counter[str]) -> None:
    writer.write(b"GET /v1/calls HTTP/1.1\r\nhost: 127.0.0.1\r\n")
    while not (reader.at_eof() or writer.is_closing()):
        writer.write(CHUNK)
        await writer.drain()
        done["bytes"] += len(CHUNK)
        await asyncio.sleep(len(CHUNK) / FLOOD_BYTES_PER_SECOND)


async def request_without_reading(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Counter[str]
) -> None:
    """Request large responses repeatedly, and read nothing."""
    connected: socket.socket = writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    cast("asyncio.Transport", writer.transport).pause_reading()
    writer.write(PIPELINED)
    await writer.drain()
    done["requests"] += PIPELINED_REQUESTS
    while not (reader.at_eof() or writer.is_closing()):
        writer.write(b"\r\n")
        await writer.drain()
        await asyncio.sleep(PAUSE_SECONDS)


KINDS: Final[dict[str, tuple[ConnectionScript, int]]] = {
    SLOW: (send_slowly, SLOW_CONNECTIONS),
    FLOODING: (send_endlessly, FLOODING_CONNECTIONS),
    UNREAD: (request_without_reading, UNREAD_CONNECTIONS),
}
