"""Ringback in its own process, which resolves callback hosts at the name servers of the run."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from ringback.bootstrap import Environment
from ringback.notifier.http.resolver import CAresResolver
from ringback.server import serve
from ringback.settings import Settings, load_settings
from ringback.upstreams.config import parse_upstream_option

READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
UPSTREAM: Final = Path(__file__).with_name("upstream.py")
HTTP_UPSTREAM: Final = Path(__file__).with_name("http_upstream.py")
CALM_TOOL_UPSTREAM, HOSTILE = "calm", "hostile"
"""Two processes of the same server. Only the hostile clients call the second one."""
STREAMING = "streaming"
"""The HTTP server that floods its streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    folder: str
    port: int
    name_servers: Sequence[str]
    streaming_port: int
    """Of `http_upstream`."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    pid: int
    log: Path

    def rss_mib(self) -> float:
        """The resident memory, as the kernel counts it."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) / 1024


def make_settings(spec: ServiceSpec) -> Settings:
    return load_settings(
        database_url=f"sqlite:///{Path(spec.folder) / 'ringback.db'}",
        port=spec.port,
        auth="keys",
        callback_private_cidrs=("127.0.0.0/8",),
        callback_http=True,
        drain_seconds=1.0,
    )


@asynccontextmanager
async def running_http_upstream(spec: ServiceSpec) -> AsyncGenerator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(HTTP_UPSTREAM), str(spec.streaming_port)
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def running_service(spec: ServiceSpec) -> AsyncGenerator[Service]:
    """Start the service, and end it with SIGTERM; raises `TimeoutError` if it does not end."""
    log = Path(spec.folder) / "service.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "scripts.soak_runs.service", json.dumps(asdict(spec)), stdout=output, stderr=output
        )
    try:
        await _answering(f"{spec.url}/readyz", process, log)
        yield Service(spec.url, process.pid, log)
        process.terminate()
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _answering(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient(trust_env=False) as http:
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"the service ended; its log is {log}")
            try:
                if (await http.get(url)).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(POLL_SECONDS)


def main(text: str) -> None:
    fields: dict[str, Any] = json.loads(text)
    spec = ServiceSpec(**fields)
    command = f"{sys.executable} -I -S {UPSTREAM}"
    configs = [parse_upstream_option(f"{name}={command} {name}") for name in (CALM_TOOL_UPSTREAM, HOSTILE)]
    configs.append(parse_upstream_option(f"{STREAMING}=http://127.0.0.1:{spec.streaming_port}/mcp"))
    serve(make_settings(spec), configs, environment=Environment(resolver=CAresResolver(spec.name_servers)))


if __name__ == "__main__":
    os.environ.pop("RINGBACK_CONFIG", None)
    main(sys.argv[1])
