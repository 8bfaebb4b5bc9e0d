"""Ringback in its own process, and an upstream in another, as an operator starts them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from scripts.ports import free_port

READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    upstream_url: str
    pid: int

    def rss_mb(self) -> float:
        """The resident memory, as the kernel counts it, in megabytes of 1,000,000 bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
        return int(kilobytes) * 1024 / 1e6

    def cpu_seconds(self) -> float:
        """The CPU time used so far, in user mode and in the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        user, system = fields[11:13]
        return (int(user) + int(system)) / _TICKS


@asynccontextmanager
async def service(*, max_concurrent: int, environment: Mapping[str, str] | None = None) -> AsyncGenerator[Service]:
    """Ringback with one silent upstream, `stage`, with this limit on concurrent calls and these further settings."""
    with TemporaryDirectory(prefix="ringback-bench-") as name:
        folder, upstream_port = Path(name), free_port()
        upstream_url = f"http://127.0.0.1:{upstream_port}/mcp"
        stage: dict[str, Any] = {"url": upstream_url, "ringback": {"max_concurrent": max_concurrent}}
        async with python_process("scripts.benchmarks.silent_upstream", str(upstream_port), log=folder / "upstream"):
            await wait_until_responding(f"http://127.0.0.1:{upstream_port}/polls")
            upstreams = {"stage": stage}
            async with ringback(
                folder, upstreams=upstreams, upstream_url=upstream_url, environment=environment
            ) as running:
                yield running


@asynccontextmanager
async def ringback(
    folder: Path, *, upstreams: Mapping[str, Any], upstream_url: str, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[Service]:
    """Ringback as an operator starts it, with callbacks to this machine and without a limit on starts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": upstreams}), encoding="utf-8")
    settings = {
        "RINGBACK_AUTH": "off",
        "RINGBACK_PORT": str(port),
        "RINGBACK_CONFIG": str(folder / "mcp.json"),
        "RINGBACK_DATABASE_URL": f"sqlite:///{folder / 'ringback.db'}",
        "RINGBACK_CALLBACK_PRIVATE_CIDRS": "127.0.0.0/8",
        "RINGBACK_CALLBACK_HTTP": "true",
        "RINGBACK_DRAIN_SECONDS": "0",
        "RINGBACK_QUOTA_STARTS_PER_MINUTE": "1000000",
        **(environment or {}),
    }
    async with python_process("ringback", "serve", environment=settings, log=folder / "ringback") as process:
        await wait_until_responding(f"{url}/readyz")
        yield Service(url, upstream_url, process.pid)


@asynccontextmanager
async def python_process(
    module: str, *arguments: str, log: Path, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.subprocess.Process]:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, env=os.environ | (environment or {}), stderr=output, stdout=output
        )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def wait_until_responding(url: str) -> None:
    """Return when `url` responds with success."""
    async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                if (await http.get(url)).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(POLL_SECONDS)
