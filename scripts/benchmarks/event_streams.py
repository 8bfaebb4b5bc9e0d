"""Idle streams of events/stream, few and many: memory and CPU of the service's process, and what one event costs among them.

Each stream is about a session of its own. Calls of a further session end meanwhile, so that each event wakes one stream, the
witness, and no other stream has anything to send but heartbeats.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from scripts.benchmarks.measurement import Json, print_progress
from scripts.benchmarks.service import Service, service

STREAM_SETTINGS: Final = {
    "RINGBACK_QUOTA_STREAMS": "1000000",
    "RINGBACK_PEER_CONNECTIONS_MAX": "1000000",
}
OPENING_AT_ONCE: Final = 32
CONCURRENT_CALLS: Final = 16
WITNESS: Final = "witness"
ACTIVE: Final = b"notifications/events/active"
EVENT: Final = b"notifications/events/event"
HEARTBEAT: Final = b"notifications/events/heartbeat"
LAST_LENGTH: Final = 64
"""Bytes kept of earlier data, in which the beginning of a frame's name may be."""
TIMEOUT_SECONDS: Final = 120.0


class StreamClient(asyncio.Protocol):
    """One connection that counts the frames of its stream and keeps nothing else."""

    def __init__(self) -> None:
        self.is_active = asyncio.Event()
        self.event_arrived = asyncio.Event()
        self.heartbeats = 0
        self._last = b""

    def data_received(self, data: bytes) -> None:
        seen = self._last + data
        if ACTIVE in seen:
            self.is_active.set()
        if EVENT in seen:
            self.event_arrived.set()
        self.heartbeats += seen.count(HEARTBEAT)
        self._last = data[-LAST_LENGTH:] if HEARTBEAT not in data[-LAST_LENGTH:] else b""

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_active.set()


async def measure_streams(sizes: Mapping[str, int], *, calls: int, idle_seconds: float) -> Json:
    """`sizes` are the numbers of streams, by "few" and "many"."""
    measured = {name: await _measure(count, calls=calls, idle_seconds=idle_seconds) for name, count in sizes.items()}
    few, many = measured["few"], measured["many"]
    return {
        "growth": {"cpu_of_an_event": round(many["cpu_ms_per_call_and_event"] / few["cpu_ms_per_call_and_event"], 2)},
        **measured,
    }


async def _measure(count: int, *, calls: int, idle_seconds: float) -> Json:
    """What an event costs is without the heartbeats of the time in which its call ran."""
    async with service(max_concurrent=CONCURRENT_CALLS, environment=STREAM_SETTINGS) as running:
        async with _open_streams(running, 1):
            await _end_calls(running, 5)  # imports, connections, first rows
        before_mb, cpu = running.rss_mb(), running.cpu_seconds()
        async with _open_streams(running, count) as streams:
            opening_cpu = running.cpu_seconds() - cpu
            print_progress(f"streams: {count:,} are open")
            full_mb = running.rss_mb()
            idle = await _idle(running, streams, idle_seconds)
            cpu, began = running.cpu_seconds(), time.perf_counter()
            await _end_calls(running, calls)
            heartbeats_cpu = idle["idle_cpu_percent"] / 100 * (time.perf_counter() - began)
            ended_cpu = running.cpu_seconds() - cpu - heartbeats_cpu
    return {
        "streams": count,
        "rss_mb": round(full_mb),
        "kb_per_stream": round((full_mb - before_mb) * 1000 / count, 1),
        "opening_cpu_ms_per_stream": round(opening_cpu * 1000 / count, 2),
        **idle,
        "cpu_ms_per_call_and_event": round(ended_cpu * 1000 / calls, 2),
    }


async def _idle(running: Service, streams: list[StreamClient], idle_seconds: float) -> Json:
    cpu, heartbeats = running.cpu_seconds(), sum(stream.heartbeats for stream in streams)
    await asyncio.sleep(idle_seconds)
    sent = sum(stream.heartbeats for stream in streams) - heartbeats
    used = running.cpu_seconds() - cpu
    return {
        "idle_cpu_percent": round(used / idle_seconds * 100, 2),
        "heartbeats_per_second": round(sent / idle_seconds, 1),
        "cpu_us_per_heartbeat": round(used / sent * 1e6) if sent else None,
    }


@asynccontextmanager
async def _open_streams(running: Service, count: int) -> AsyncGenerator[list[StreamClient]]:
    left = iter(range(count))
    streams: list[StreamClient] = []
    transports: list[asyncio.Transport] = []

    async def open_some() -> None:
        for number in left:
            transport, stream = await _connect(running, f"idle-{number}")
            transports.append(transport)
            streams.append(stream)
            await asyncio.wait_for(stream.is_active.wait(), TIMEOUT_SECONDS)
            if transport.is_closing():
                raise RuntimeError(f"stream {number} was refused; nothing is measured")

    try:
        await asyncio.gather(*(open_some() for _ in range(OPENING_AT_ONCE)))
        yield streams
    finally:
        for transport in transports:
            transport.close()


async def _connect(running: Service, session: str) -> tuple[asyncio.Transport, StreamClient]:
    """Send the request for a stream of this session's ends on a connection of its own."""
    loop, url = asyncio.get_running_loop(), urlsplit(running.url)
    transport, stream = await loop.create_connection(StreamClient, str(url.hostname), url.port or 80)
    transport.write(_stream_request(url.netloc, session))
    return transport, stream


async def _end_calls(running: Service, count: int) -> None:
    """End calls one after the other, each when the witness has got the event of the one before."""
    transport, witness = await _connect(running, WITNESS)
    async with aiohttp.ClientSession(running.url) as http:
        await asyncio.wait_for(witness.is_active.wait(), TIMEOUT_SECONDS)
        body: Json = {"upstream": "stage", "tool": "echo", "arguments": {}, "client_session_id": WITNESS}
        for _ in range(count):
            witness.event_arrived.clear()
            async with http.post("/v1/calls", json=body) as response:
                response.raise_for_status()
                await response.read()
            await asyncio.wait_for(witness.event_arrived.wait(), TIMEOUT_SECONDS)
    transport.close()


def _stream_request(host: str, session: str) -> bytes:
    """A modern request for the ends of this session's calls."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "call.finished", "arguments": {"client_session_id": session}, "cursor": None, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "events/stream", "params": params}).encode()
    lines = {
        "host": host,
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "content-length": len(body),
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "events/stream",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body
