"""The processes around a client: the upstream, Ringback in front of it, and the receiver of its callbacks.

Everything is on loopback and ends with the run.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs.judge import Runs
from scripts.ports import free_port

UPSTREAM: Final = "stage"
"""The name of the upstream in Ringback, and of its endpoint: `/mcp/stage`."""
START_SECONDS: Final = 120.0
"""For a start, which takes two seconds on an idle machine."""
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
LOG_CHARACTERS_QUOTED: Final = 1500


class StageFailed(Exception):
    """A process of the stage did not start; the message quotes its log."""


@dataclass(slots=True, eq=False)
class StageProcess:
    """A process that listens on a port, can be killed, and starts again on the same port."""

    name: str
    command: Sequence[str]
    port: int
    log: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def mcp_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RINGBACK_")}
        with self.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(*self.command, stdout=output, stderr=output, env=kept)
        try:
            async with asyncio.timeout(START_SECONDS):
                while not listens(self.port):
                    if self.process.returncode is not None:
                        raise StageFailed(f"{self.name} ended: {self.quote_log()}")
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise StageFailed(f"{self.name} does not listen: {self.quote_log()}") from None

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(number)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def restart(self, number: signal.Signals) -> None:
        await self.stop(number)
        await self.start()

    def quote_log(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS_QUOTED:]


@dataclass(slots=True, eq=False)
class Receiver:
    """An HTTP server that accepts every callback, keeps it, and returns challenges."""

    port: int = 0
    callbacks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/callbacks"

    def sessions_at(self, url: str) -> list[str | None]:
        """The session labels of the callbacks to this URL."""
        return [body["data"].get("client_session_id") for body in self.callbacks if url.endswith(body["path"])]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                path, body = await _read_request(reader)
                challenge = body.get("challenge") if "type" in body else None
                if "data" in body:
                    self.callbacks.append({**body, "path": path})
                answer = json.dumps({} if challenge is None else {"challenge": challenge}).encode()
                head = f"HTTP/1.1 {HTTPStatus.OK} OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
                writer.write(head.encode() + answer)
                await writer.drain()
        writer.close()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    body: dict[str, Any] = json.loads(content or b"{}")
    return first.split(" ")[1], body


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    server: StageProcess
    ringback: StageProcess
    receiver: Receiver
    ledger: Path

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.ringback.port}"

    @property
    def url(self) -> str:
        return f"{self.ringback.mcp_url}/{UPSTREAM}"

    def runs(self, key: str) -> Runs:
        return count_runs(self.ledger, key)

    async def restart(self, number: signal.Signals) -> None:
        """Restart Ringback."""
        await self.ringback.restart(number)


def count_runs(ledger: Path, key: str) -> Runs:
    """How often the tool ran with this key, by the upstream's ledger."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    whats = [entry["what"] for entry in map(json.loads, lines) if entry["key"] == key]
    return Runs(whats.count("started"), whats.count("finished"), whats.count("cancelled"))


OWN_SERVER: Final = (sys.executable, "-m", "scripts.interop_runs.upstream")


@contextlib.asynccontextmanager
async def open_stage(
    folder: Path, *, server: Sequence[str] = OWN_SERVER, chained: bool = False
) -> AsyncGenerator[Stage]:
    """A fresh Ringback with default settings, `serve --dev`, in front of a fresh server. `server` gets a port and a ledger.

    With `chained`, another Ringback is between the two. It is not restarted with the first one.
    """
    ledger, port = folder / "ledger.jsonl", free_port()
    upstream = StageProcess("the upstream", [*server, str(port), str(ledger)], port, folder / "upstream.log")
    between = [make_ringback(folder / "between", {UPSTREAM: {"url": upstream.mcp_url}})] if chained else []
    url = f"{between[0].mcp_url}/{UPSTREAM}" if chained else upstream.mcp_url
    ringback = make_ringback(folder / "ringback", {UPSTREAM: {"url": url}})
    async with receiving() as receiver, running([upstream, *between, ringback]):
        yield Stage(server=upstream, ringback=ringback, receiver=receiver, ledger=ledger)


@contextlib.asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.accept, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


@contextlib.asynccontextmanager
async def running(processes: Sequence[StageProcess]) -> AsyncGenerator[None]:
    """Start the processes in order, and stop them in the reverse order."""
    try:
        for process in processes:
            await process.start()
        yield
    finally:
        for process in reversed(processes):
            await process.stop()


def make_ringback(folder: Path, servers: Mapping[str, Any]) -> StageProcess:
    folder.mkdir()
    port, config = free_port(), folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    database = f"sqlite:///{folder / 'ringback.db'}"
    options = ["--dev", "--port", str(port), "--database", database, "--config", str(config)]
    command = [sys.executable, "-m", "ringback", "serve", *options]
    return StageProcess("ringback", command, port, folder / "ringback.log")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
