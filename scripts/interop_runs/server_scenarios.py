"""The scenarios of a server that others wrote, with and without Ringback.

list       the same tools as without Ringback
fast       its tools return what they return without Ringback
slow       a tool beyond the window, if it has one
callback   a callback with the client's session label
restart    Ringback is restarted between two calls of one session
"""

import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from scripts.interop_runs import judge
from scripts.interop_runs.catalog import Way
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import WAIT_TOOL, Answer, Judgement, ObservedCall, Runs, Verdict
from scripts.interop_runs.labels import Label, new_key
from scripts.interop_runs.scenarios import LOOKS_MAX, is_final, wait_until
from scripts.interop_runs.servers import Server, ToolCall
from scripts.interop_runs.stage import UPSTREAM, Receiver, StageProcess, make_ringback, running

BUILTIN_PREFIX: Final = "ringback_"
RAN_ONCE: Final = Runs(started=1, finished=1)
"""Servers that others wrote do not count their runs."""


@dataclass(slots=True, kw_only=True)
class ServerRun:
    server: Server
    environment: Environment
    client_environment: Environment
    client_driver: str
    receiver: Receiver
    folder: Path
    note: Callable[[str], None] = print

    async def run(self) -> dict[str, Judgement]:
        make_repository(self.folder / "repository")
        ringback = make_ringback(self.folder / "ringback", {UPSTREAM: self._config()})
        async with running([ringback]):
            driver = DriverProcess(self.client_environment, self.client_driver, self.folder / "driver.log")
            try:
                return await self._run_with(driver, ringback)
            finally:
                await driver.kill()

    async def _run_with(self, driver: DriverProcess, ringback: StageProcess) -> dict[str, Judgement]:
        url = f"{ringback.mcp_url}/{UPSTREAM}"
        direct = await self._list_directly(driver)
        opened = await driver.open(url=url)
        if direct.raised or opened.raised:
            return {"open": self._told("open", judge.failed(f"raised {direct.raised or opened.raised}"))}
        judged = {"list": self._told("list", judge_same_tools(direct, await driver.list_tools()))}
        judged["fast"] = self._told("fast", await self._judge_calls(driver))
        if self.server.slow is not None:
            judged["slow"] = self._told("slow", judge.judge_call(await self._observe(driver, self.server.slow)))
        judged["callback"] = self._told("callback", await self._judge_callback(driver))
        await ringback.stop(signal.SIGTERM)
        await ringback.start()
        judged["restart"] = self._told("restart", await self._judge_calls(driver))
        return judged

    async def _list_directly(self, driver: DriverProcess) -> Answer:
        opened = await driver.open(url="", command=self._command())
        listed = opened if opened.raised else await driver.list_tools()
        await driver.close()
        return listed

    async def _judge_calls(self, driver: DriverProcess) -> Judgement:
        judged = [judge.judge_call(await self._observe(driver, call)) for call in self.server.calls]
        return next((each for each in judged if each.verdict is not Verdict.PASSED), judged[0])

    async def _judge_callback(self, driver: DriverProcess) -> Judgement:
        name = new_key()
        label = Label(way=Way.META, session=f"session-{name}", callback_url=f"{self.receiver.url}/{name}")
        observed = await self._observe(driver, self.server.calls[0], label)
        return judge.judge_callbacks({Way.META: observed})

    async def _observe(self, driver: DriverProcess, call: ToolCall, label: Label | None = None) -> ObservedCall:
        arguments = self._fill(dict(call.arguments))
        answer = await driver.call(call.tool, arguments, meta=label.meta if label else None)
        answers = [answer]
        call_id = judge.find_call_id(answer.text)
        while call_id and call.wanted not in answers[-1].text and len(answers) < LOOKS_MAX:
            answers.append(await driver.call(WAIT_TOOL, {"call_id": call_id}))
            if answers[-1].raised is not None or is_final(answers[-1].text):
                break
        observed = ObservedCall(answer=answer, outcome=call.wanted, runs=RAN_ONCE, follow_ups=answers[1:])
        if label is None:
            return observed
        await wait_until(lambda: bool(self.receiver.sessions_at(label.callback_url)))
        sessions = self.receiver.sessions_at(label.callback_url)
        return replace(observed, sessions=sessions, expected_session=label.session)

    def _config(self) -> dict[str, object]:
        command, *arguments = self._command()
        return {"command": command, "args": arguments}

    def _command(self) -> list[str]:
        command, *arguments = self.server.command
        variables = [f"{name}={self._fill(value)}" for name, value in self.server.variables.items()]
        variables.append(f"PATH={self.environment.variables()['PATH']}")
        return ["env", *variables, str(self.environment.bin / command), *(self._fill(each) for each in arguments)]

    def _fill(self, value: Any) -> Any:
        """The value with `{folder}` and `{page}` filled in, at any depth."""
        match value:
            case str():
                return value.replace("{folder}", str(self.folder)).replace("{page}", f"{self.receiver.url}/page")
            case dict():
                return {key: self._fill(each) for key, each in cast("dict[str, Any]", value).items()}
            case list():
                return [self._fill(each) for each in cast("list[Any]", value)]
            case _:
                return value

    def _told(self, name: str, judgement: Judgement) -> Judgement:
        self.note(f"{self.server.name:<26} {name:<9} {judgement.verdict:<12} {judgement.detail}")
        return judgement


def judge_same_tools(direct: Answer, through: Answer) -> Judgement:
    """Through Ringback a client sees all tools of the server, and Ringback's own.

    It may see more: tools that the server lists only to clients that answer questions. A callback can request the answer.
    """
    if through.raised is not None:
        return judge.failed(f"raised {through.raised}")
    seen = {tool for tool in through.tools if not tool.startswith(BUILTIN_PREFIX)}
    if missing := sorted(set(direct.tools) - seen):
        return judge.failed(f"not listed: {', '.join(missing)}")
    more = sorted(seen - set(direct.tools))
    return judge.passed(f"{len(direct.tools)} tools" + (f", and {', '.join(more)}" if more else ""))


def make_repository(folder: Path) -> None:
    """A git repository with one commit."""
    git = shutil.which("git") or "git"
    folder.mkdir()
    names = ["-c", "user.name=interop", "-c", "user.email=interop@example.com"]
    for words in (["init", "--quiet"], [*names, "commit", "--quiet", "--allow-empty", "--message", "interop"]):
        subprocess.run([git, *words], cwd=folder, check=True, capture_output=True)
