"""A hostile principal that asks for large results on many connections and reads none of them."""

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Final, cast

from scripts.soak_runs.hostile_callers import Caller
from scripts.soak_runs.hostile_connections import RECEIVE_BYTES, ConnectionScript, repeat_connections

UNREAD_RESULTS: Final = "unread_results"
SOURCE: Final = "127.0.0.5"
CONNECTIONS: Final = 100
RESULTS: Final = 6
HELD_SECONDS: Final = 20.0
"""How long a connection stays open: shorter than the time after which the service closes it, so that more are refused."""
HEAD_BYTES: Final = 12


async def make_large_results(caller: Caller) -> list[str]:
    """The paths of several results of 15 MB."""
    return [f"/v1/calls/{await caller.make_large_result()}/result" for _ in range(RESULTS)]


async def read_nothing(paths: Sequence[str], key: str, port: int, done: Counter[str]) -> None:
    """Keep connections open that request these results and do not read them, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            request = (
                f"GET {paths[number % RESULTS]} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n\r\n"
            )
            group.create_task(repeat_connections(SOURCE, port, _make_script(request.encode()), done))


def _make_script(request: bytes) -> ConnectionScript:
    async def hold_result(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Counter[str]) -> None:
        connected: socket.socket = writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        writer.write(request)
        head = await reader.read(HEAD_BYTES)
        done[f"status_{head[-3:].decode()}"] += 1
        cast("asyncio.Transport", writer.transport).pause_reading()
        await asyncio.sleep(HELD_SECONDS)

    return hold_result
