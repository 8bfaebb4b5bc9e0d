"""Ringback in its own process, which resolves callback hosts at the name servers of the run."""

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ringback.bootstrap import Environment
from ringback.notifier.http.resolver import CAresResolver
from ringback.server import serve
from ringback.settings import Settings, load_settings
from ringback.upstreams.config import parse_upstream_option
from scripts.soak_runs.http_upstream import STREAMING
from scripts.soak_runs.upstream import CALM, HOSTILE
from tests.support.processes import running_process

UPSTREAM: Final = Path(__file__).with_name("upstream.py")
HTTP_UPSTREAM: Final = Path(__file__).with_name("http_upstream.py")


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
    """Start the service, and end it with SIGTERM; raises `AssertionError` if it does not end."""
    async with running_process(module=__name__, **asdict(spec)) as process:
        assert process.process.pid is not None
        yield Service(process.url, process.process.pid)
        process.send_signal(signal.SIGTERM)
        await process.wait_until_dead()


def main(fields: Mapping[str, Any]) -> None:
    os.environ.pop("RINGBACK_CONFIG", None)
    spec = ServiceSpec(**{field.name: fields[field.name] for field in dataclasses.fields(ServiceSpec)})
    command = f"{sys.executable} -I -S {UPSTREAM}"
    configs = [parse_upstream_option(f"{name}={command} {name}") for name in (CALM, HOSTILE)]
    configs.append(parse_upstream_option(f"{STREAMING}=http://127.0.0.1:{spec.streaming_port}/mcp"))
    serve(make_settings(spec), configs, environment=Environment(resolver=CAresResolver(spec.name_servers)))
