"""Ringback as a real process, for tests that kill it."""

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

WAIT_SECONDS: Final = 30.0
"""A Python process that imports everything starts in two seconds; on two busy cores in a few more."""
_LISTENING: Final = re.compile(rb"service\.listening .*url=(\S+)")


@dataclass(slots=True)
class ServiceProcess:
    process: Process
    url: str
    output: list[str] = field(default_factory=list[str])

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.died()

    async def died(self) -> int:
        """Wait until the process is gone; its exit code, -9 after SIGKILL."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def service(*, module: str = "tests.crash.service", **spec: Any) -> AsyncGenerator[ServiceProcess]:
    """The module as a process with this spec, listening; killed at the end unless it has died by then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, json.dumps(spec), stderr=asyncio.subprocess.PIPE
    )
    reading = None
    try:
        output: list[str] = []
        running = ServiceProcess(process, await _url(process, output), output)
        reading = asyncio.create_task(_read(process, output))
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if reading is not None:
            await reading


async def _url(process: Process, output: list[str]) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_SECONDS):
        async for line in process.stderr:
            output.append(line.decode())
            if found := _LISTENING.search(line):
                return found.group(1).decode()
    raise AssertionError(f"the service did not start: {''.join(output)}")


async def _read(process: Process, output: list[str]) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        output.append(line.decode())  # noqa: PERF401 - read by the test while it grows


async def acknowledged(url: str, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any] | None:
    """The answer to a POST, or None when the service died before it answered."""
    try:
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client:
            response = await client.post(path, json=body, headers=headers)
    except httpx.TransportError:
        return None
    assert response.is_success, response.text
    return dict(response.json())
