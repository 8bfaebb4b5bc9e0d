"""The measured principal: calls at a constant rate, each with a callback; meanwhile probes of /healthz and of memory."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from ringback.domain.clock import SystemClock
from ringback.receiver import VerificationError, verify
from scripts.soak_runs.service import Service
from scripts.soak_runs.upstream import CALM

CALLS_PER_SECOND: Final = 10.0
CALLBACK_SECONDS: Final = 60.0
"""A callback counts as lost after this time. The slowest retry of a callback comes after six seconds."""
PROBES_PER_SECOND: Final = 10.0
HEALTHZ_SECONDS_MAX: Final = 60.0
CLOCK: Final = SystemClock()
OK: Final = 200
ACCEPTED: Final = 202


@dataclass(slots=True)
class MeasuredPhase:
    """The measurements of one phase; times in seconds."""

    accepts: list[float] = field(default_factory=list[float])
    callbacks: list[float] = field(default_factory=list[float])
    """From the request to the callback."""
    healthz: list[float] = field(default_factory=list[float])
    rss_mib: list[float] = field(default_factory=list[float])
    started: int = 0
    refused: int = 0
    """Requests without a response, or with another status than 202."""
    lost: int = 0
    """Calls without a callback."""
    wrong: int = 0
    """Callbacks with another outcome than the tool's result, or with an invalid signature."""
    unhealthy: int = 0
    """Probes of /healthz without a 200."""


class Callbacks:
    """The measured principal's receiver: a future for each callback, by correlation id."""

    def __init__(self) -> None:
        self.url = ""
        self.secret = ""
        self._awaited: dict[str, asyncio.Future[bool]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[bool]:
        """Whether the callback was correct."""
        self._awaited[correlation_id] = asyncio.get_running_loop().create_future()
        return self._awaited[correlation_id]

    def receive(self, headers: dict[str, str], body: bytes) -> None:
        data = json.loads(body)["data"]
        waiting = self._awaited.pop(data.get("correlation_id") or "", None)
        if waiting is not None and not waiting.done():
            waiting.set_result(data["outcome"] == "result" and self._signed(headers, body))

    def _signed(self, headers: dict[str, str], body: bytes) -> bool:
        try:
            verify(headers, body, [self.secret], now=CLOCK.now())
        except VerificationError:
            return False
        return True


class MeasuredClient:
    def __init__(self, service: Service, http: httpx.AsyncClient, callbacks: Callbacks) -> None:
        self._service = service
        self._http = http
        self._callbacks = callbacks
        self._number = 0

    async def register(self) -> None:
        body = {"url": self._callbacks.url, "client_session_id": "quiet"}
        response = await self._http.post("/v1/webhooks", json=body)
        response.raise_for_status()
        self._callbacks.secret = response.json()["secret"]

    async def run_phase(self, seconds: float) -> MeasuredPhase:
        """Call for the given seconds; return when the last callback has arrived or is lost."""
        phase = MeasuredPhase()
        probing = asyncio.create_task(self.probe_health(phase))
        began = time.monotonic()
        async with asyncio.TaskGroup() as calls:
            for number in range(round(seconds * CALLS_PER_SECOND)):
                await asyncio.sleep(began + number / CALLS_PER_SECOND - time.monotonic())
                calls.create_task(self.make_call(phase))
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
        return phase

    async def make_call(self, phase: MeasuredPhase) -> None:
        self._number += 1
        name = f"quiet-{self._number}"
        body: dict[str, Any] = {
            "upstream": CALM,
            "tool": "echo",
            "arguments": {"number": self._number},
            "client_session_id": "quiet",
            "correlation_id": name,
        }
        expected, began = self._callbacks.expect(name), time.monotonic()
        phase.started += 1
        try:
            response = await self._http.post("/v1/calls", json=body)
        except httpx.TransportError:
            phase.refused += 1
            return
        if response.status_code != ACCEPTED:
            phase.refused += 1
            return
        phase.accepts.append(time.monotonic() - began)
        try:
            right = await asyncio.wait_for(expected, CALLBACK_SECONDS)
        except TimeoutError:
            phase.lost += 1
            return
        phase.callbacks.append(time.monotonic() - began)
        phase.wrong += not right

    async def probe_health(self, phase: MeasuredPhase) -> None:
        async with httpx.AsyncClient(base_url=self._service.url, trust_env=False, timeout=HEALTHZ_SECONDS_MAX) as http:
            while True:
                began = time.monotonic()
                try:
                    phase.unhealthy += (await http.get("/healthz")).status_code != OK
                except httpx.TransportError:
                    phase.unhealthy += 1
                phase.healthz.append(time.monotonic() - began)
                phase.rss_mib.append(self._service.rss_mib())
                await asyncio.sleep(1 / PROBES_PER_SECOND)


@asynccontextmanager
async def receiving(callbacks: Callbacks) -> AsyncGenerator[None]:
    """A plain HTTP/1.1 receiver on loopback, in this process."""
    server = await asyncio.start_server(lambda reader, writer: _answer(reader, writer, callbacks), "127.0.0.1", 0)
    callbacks.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    async with server:
        yield


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, callbacks: Callbacks) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").split("\r\n")[1:-2]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            callbacks.receive(headers, body)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
