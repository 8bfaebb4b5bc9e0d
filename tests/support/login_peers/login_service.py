"""`ringback serve` and `ringback upstreams login` as processes, for tests of logins that kill and restart the service."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scripts.ports import free_port
from tests.support.databases import database_url, service_environment
from tests.support.forked_commands import ForkedCommand, running_forked_command
from tests.support.limits import WAIT_SECONDS

_URL: Final = re.compile(r"https?://\S+[?&]state=\S+")


@dataclass(slots=True, kw_only=True)
class LoginService:
    """A service with API keys and the upstream `files`, always at the same URL."""

    folder: Path
    upstream: dict[str, Any]
    """The entry of `files` in the configuration file."""
    port: int = field(default_factory=free_port)
    output: list[str] = field(default_factory=list[str])
    """All lines of standard output and standard error of all commands."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ForkedCommand]:
        """The service; killed at the end of the context."""
        config = self.folder / "ringback.json"
        config.write_text(json.dumps({"mcpServers": {"files": self.upstream}}))
        arguments = ("serve", "--config", str(config), "--port", str(self.port), "--log-format", "json")
        async with self._running_command(*arguments, "--log-level", "debug") as process:
            while "service.listening" not in (line := await self._read_line(process)):
                assert line, "".join(self.output)
            reading = asyncio.create_task(self._read_rest(process))
            try:
                yield process
            finally:
                process.process.kill()
                await asyncio.wait_for(reading, WAIT_SECONDS)

    async def create_key(self, principal: str, *scopes: str) -> str:
        options = [part for scope in scopes for part in ("--scope", scope)]
        async with self._running_command("keys", "create", principal, "--create", *options) as process:
            printed, said = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
        assert process.returncode == 0, said.decode()
        return printed.decode().strip()

    @asynccontextmanager
    async def signing_in(self, key: str, *options: str) -> AsyncGenerator[tuple[ForkedCommand, str]]:
        """`ringback upstreams login files`, and the URL that it prints."""
        arguments = ("upstreams", "login", "files", "--no-browser", "--url", self.url, *options)
        async with self._running_command(*arguments, RINGBACK_API_KEY=key) as process:
            while (found := _URL.search(line := await self._read_line(process))) is None:
                assert line, "".join(self.output)
            yield process, found.group()
            await asyncio.wait_for(process.wait(), WAIT_SECONDS)
            assert process.returncode == 0, await self._read_rest(process)

    @asynccontextmanager
    async def _running_command(self, *arguments: str, **variables: str) -> AsyncGenerator[ForkedCommand]:
        environment = {
            **os.environ,
            **service_environment(),
            "RINGBACK_DATABASE_URL": database_url(self.folder),
            "RINGBACK_CALLBACK_HTTP": "true",
            "RINGBACK_CALLBACK_PRIVATE_CIDRS": "127.0.0.0/8",
            "RINGBACK_DRAIN_SECONDS": "0",
            **variables,
        }
        async with running_forked_command(*arguments, folder=self.folder, environment=environment) as process:
            yield process

    async def _read_line(self, process: ForkedCommand) -> str:
        line = (await asyncio.wait_for(process.stderr.readline(), WAIT_SECONDS)).decode()
        self.output.append(line)
        return line

    async def _read_rest(self, process: ForkedCommand) -> str:
        async for line in process.stderr:
            self.output.append(line.decode())
        return "".join(self.output)
