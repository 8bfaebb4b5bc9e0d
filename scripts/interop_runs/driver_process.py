"""A driver's process: one client. `drivers/kit.py` describes the lines that it reads and writes."""

import asyncio
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import Answer

ANSWER_SECONDS: Final = 180.0
"""For one command. A client that hangs longer fails; imports of the largest frameworks take half a minute on a busy machine."""
LINE_BYTES_MAX: Final = 16 * 1024 * 1024


class DriverProcess:
    def __init__(
        self, environment: Environment, driver: str, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment
        self._driver = driver
        self._log = log
        self._variables = environment.variables() | dict(variables or {})
        self._process: asyncio.subprocess.Process | None = None

    async def open(self, *, url: str, headers: Mapping[str, str] | None = None, command: Sequence[str] = ()) -> Answer:
        return await self.ask({"do": "open", "url": url, "headers": dict(headers or {}), "command": list(command)})

    async def close(self) -> Answer:
        return await self.ask({"do": "close"})

    async def list_tools(self) -> Answer:
        return await self.ask({"do": "list"})

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        cancel_after: float | None = None,
    ) -> Answer:
        command = {"do": "call", "tool": tool, "arguments": dict(arguments), "meta": dict(meta or {}) or None}
        return await self.ask(command | {"cancel_after": cancel_after})

    async def ask(self, command: Mapping[str, Any]) -> Answer:
        """The driver's answer. A driver that ends or hangs has raised."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        return _read_answer(await self.exchange(command), loop.time() - began)

    async def exchange(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The members of the driver's answer."""
        try:
            return await self._exchange(command)
        except TimeoutError:
            await self.kill()
            return {"raised": f"no answer within {ANSWER_SECONDS:g} s"}

    async def kill(self) -> None:
        """End the client as a crash does, without a word to the server."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        self._process = None

    async def _exchange(self, command: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(ANSWER_SECONDS):
            try:
                process.stdin.write(json.dumps(command).encode() + b"\n")
                await process.stdin.drain()
            except ConnectionError:
                return await self._describe_end(process)
            line = await process.stdout.readline()
        return dict(json.loads(line)) if line else await self._describe_end(process)

    async def _start(self) -> asyncio.subprocess.Process:
        with self._log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._environment.command(self._driver),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=self._variables,
                cwd=self._log.parent,
                limit=LINE_BYTES_MAX,
            )
        return self._process

    async def _describe_end(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        await process.wait()
        self._process = None
        last_words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return {"raised": f"the client's process ended: {''.join(last_words)}"}


def _read_answer(said: Mapping[str, Any], seconds: float) -> Answer:
    return Answer(
        text=str(said.get("text", "")),
        blocks=tuple(said.get("blocks", ("text",))),
        is_error=bool(said.get("is_error", False)),
        progress=int(said.get("progress", 0)),
        tools=tuple(said.get("tools", ())),
        given_up=bool(said.get("given_up", False)),
        raised=said.get("raised"),
        seconds=seconds,
    )
