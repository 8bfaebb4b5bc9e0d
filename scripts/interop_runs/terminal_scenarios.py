"""The scenarios of an agent in a terminal, whose file `ringback connect` writes. It starts `ringback mcp` by itself.

connect   `ringback connect CLIENT --write` puts Ringback in the place of the server, in the client's own file
list      the client's own list of servers says that it can use the server; most clients connect for that
tools     the client offers the server's tools and Ringback's to its model
slow      the model calls a tool beyond Ringback's window, reads what to do, waits for the call, and reads the result
undo      `ringback connect CLIENT --undo` gives the file the bytes that it had, or the servers that it had if the client, as
          Claude Code does, has written its file meanwhile
"""

import asyncio
import json
import os
import signal
import sys
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ringback.cli.embedded_service.paths import find_paths
from ringback.cli.embedded_service.runtime_file import read_running_service
from scripts.interop_runs import judge
from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import Answer, Judgement, ObservedCall, outcome_of
from scripts.interop_runs.scenarios import POLL_SECONDS, STAGE_TOOLS, new_key
from scripts.interop_runs.scripted_model import Script, serving_model
from scripts.interop_runs.stage import OWN_SERVER, StageProcess, count_runs, running
from scripts.interop_runs.terminal_clients import TerminalClient
from scripts.ports import free_port

COMMAND_SECONDS: Final = 180.0
"""For one run of a client. The slowest takes some 40 s on a busy machine."""
LOOKS_MAX: Final = 3
"""The first list also starts the service. Gemini CLI waits five seconds, which is too short on a busy machine."""
ENDING_LOOKS: Final = 50
"""For five seconds: a start that another client's process began may end after the client."""
BUILT_IN_TOOLS: Final = (judge.WAIT_TOOL, "ringback_get_call", "ringback_cancel_call")


class TerminalFailed(Exception):
    """A command failed, or did not do what it should; the message says how."""


@dataclass(slots=True, kw_only=True)
class TerminalRun:
    client: TerminalClient
    environment: Environment
    folder: Path
    slow_seconds: float
    only: Sequence[str] = ()
    """The scenarios to run beside `connect` and `undo`. Default: all."""
    note: Callable[[str], None] = print
    _script: Script | None = field(default=None, init=False)

    async def run(self) -> dict[str, Judgement]:
        port, ledger = free_port(), self.folder / "ledger.jsonl"
        upstream = StageProcess(
            "the upstream", [*OWN_SERVER, str(port), str(ledger)], port, self.folder / "upstream.log"
        )
        before = self._write_file(upstream.mcp_url)
        scenarios: dict[str, Callable[[], Awaitable[str]]] = {
            "connect": self._connect,
            "list": self._list,
            "tools": self._check_tools,
            "slow": self._slow,
            "undo": lambda: self._undo(before),
        }
        async with running([upstream]), self._ending_service():
            return {name: await self._judge(name, scenarios[name]) for name in scenarios if self._wants(name)}

    def _wants(self, name: str) -> bool:
        return not self.only or name in {*self.only, "connect", "undo"}

    async def _judge(self, name: str, scenario: Callable[[], Awaitable[str]]) -> Judgement:
        try:
            judgement = judge.passed(await scenario())
        except TerminalFailed as problem:
            judgement = judge.failed(str(problem))
        self.note(f"{self.client.name:<26} {name:<9} {judgement.verdict:<12} {judgement.detail}")
        return judgement

    # -- scenarios --

    async def _connect(self) -> str:
        before = self._path.read_bytes()
        await self._execute([*_RINGBACK, "connect", self.client.client, "--write"], {})
        if self._path.read_bytes() == before:
            raise TerminalFailed("the file is as it was")
        return ""

    async def _list(self) -> str:
        said = ""
        for look in range(1, LOOKS_MAX + 1):
            said = await self._execute(self.client.list_command, self.client.list_variables)
            line = next((line for line in said.splitlines() if "ringback" in line and "mcp" in line), "")
            if self.client.listed in line:
                return self.client.listed + (f", at look {look}" if look > 1 else "")
        raise TerminalFailed(f"its list says: {said.strip()}")

    async def _check_tools(self) -> str:
        script = await self._run_client()
        answer = Answer(tools=script.tools)
        judgement = judge.judge_list(answer, (*STAGE_TOOLS, *BUILT_IN_TOOLS))
        return _require(judgement)

    async def _slow(self) -> str:
        script = await self._run_client()
        first, *later = [Answer(text=text) for text in script.results] or [Answer(raised="no result reached the model")]
        runs = count_runs(self.folder / "ledger.jsonl", str(script.arguments["key"]))
        return _require(
            judge.judge_call(ObservedCall(answer=first, outcome=script.outcome, runs=runs, follow_ups=later))
        )

    async def _undo(self, before: bytes) -> str:
        await self._execute([*_RINGBACK, "connect", self.client.client, "--undo"], {})
        after = self._path.read_bytes()
        if after == before:
            return "the same bytes"
        if self._read_servers(after) != self._read_servers(before):
            raise TerminalFailed("the file has other servers than before")
        return "the same servers; the client has written the file"

    def _read_servers(self, content: bytes) -> Any:
        text = content.decode()
        is_toml = self._path.suffix == ".toml"
        return tomllib.loads(text)["mcp_servers"] if is_toml else json.loads(text)["mcpServers"]

    # -- parts --

    async def _run_client(self) -> Script:
        """The script after one run of the client, in which the model calls the slow tool. Both scenarios judge this run."""
        if self._script is None:
            key = new_key()
            arguments = {"key": key, "seconds": self.slow_seconds}
            script = self._script = Script(tool="slow", arguments=arguments, outcome=outcome_of(key))
            with serving_model(script) as url:
                await self._execute(self.client.run_command(url), self.client.variables(url))
        return self._script

    async def _execute(self, command: Sequence[str], variables: Mapping[str, str]) -> str:
        """What the command prints. Raises `TerminalFailed` if it fails or hangs."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._environment, **variables},
            cwd=self._project,
            start_new_session=True,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
        except TimeoutError:
            raise TerminalFailed(f"{command[0]} did not end within {COMMAND_SECONDS:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the client and the servers that it started
        text = output.decode(errors="replace")
        if process.returncode:
            raise TerminalFailed(f"{command[0]} ended with {process.returncode}: {text.strip()[-200:]}")
        return text

    def _write_file(self, url: str) -> bytes:
        self._project.mkdir(parents=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self.client.write_file(url), encoding="utf-8")
        return self._path.read_bytes()

    @asynccontextmanager
    async def _ending_service(self) -> AsyncGenerator[None]:
        """End the service that `ringback mcp` started: it outlives its clients for a while."""
        paths = find_paths(self._environment)
        try:
            yield
        finally:
            for _ in range(ENDING_LOOKS):
                if (service := read_running_service(paths)) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(service.pid, signal.SIGKILL)
                await asyncio.sleep(POLL_SECONDS)

    @property
    def _project(self) -> Path:
        return self.folder / "project"

    @property
    def _path(self) -> Path:
        return self.folder / "home" / self.client.file

    @property
    def _environment(self) -> dict[str, str]:
        home = self.folder / "home"
        folders = {f"XDG_{name}_HOME": str(home / f".{name.lower()}") for name in ("CONFIG", "STATE", "CACHE", "DATA")}
        path = os.pathsep.join([str(self.environment.bin), str(Path(sys.executable).parent), os.defpath])
        return {"HOME": str(home), "PATH": path, "TERM": "dumb", **folders}


_RINGBACK: Final = (sys.executable, "-m", "ringback")


def _require(judgement: Judgement) -> str:
    if judgement.verdict is not judge.Verdict.PASSED:
        raise TerminalFailed(judgement.detail)
    return judgement.detail
