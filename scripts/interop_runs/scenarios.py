"""The scenarios of one client, each with the client's and Ringback's default settings.

list, fast     the tools of the upstream, and one that returns at once
slow           a tool beyond Ringback's window; then what its answer says to do
slow-40        the same with a tool of 40 s; not with --quick
typed          the same with an outputSchema
progress       a tool within the window that reports progress
cancel         a model cancels a call with ringback_cancel_call
give up        the client gives up a call; afterwards its session still works
callback       a callback with the client's session label, by every way of setting it
rejoin         the client is killed during a call; a new one finds the call by its session, and gets the result
restart        Ringback is restarted between two calls of one session
kill           Ringback is killed during a call; the same client's next look is true
server kill    the server is killed during a call; the same client's next look is true, and its next call works
patience       how long the client waits for a tool of 70 s of the server itself; only with --only patience
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs import judge
from scripts.interop_runs.catalog import Client, Transport, Way
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import Answer, Judgement, ObservedCall, Verdict, outcome_of
from scripts.interop_runs.labels import Label, new_key
from scripts.interop_runs.stage import UPSTREAM, Stage, StageProcess

STAGE_TOOLS: Final = ("fast", "slow", "measure", "report", "remember", "survive")
SLOW_SECONDS: Final = 7.0
"""Longer than Ringback's window and than the five seconds after which common clients give up."""
FULL_SECONDS: Final = 40.0
"""Longer than most clients' patience, and shorter than one minute, at which proxies cut."""
PATIENT_SECONDS: Final = 70.0
"""Longer than the 60 s after which the SDKs for TypeScript give up."""
PROGRESS_SECONDS: Final = 2.4
ENDLESS_SECONDS: Final = 120.0
"""A call that is cancelled long before its end."""
BEGIN_SECONDS: Final = 1.5
"""After this time of a call, its client or Ringback is killed."""
GIVE_UP_SECONDS: Final = 30.0
"""After this time the user of a client gives up a call whose Ringback was killed; some clients never do."""
LOOKS_MAX: Final = 16
"""Calls of ringback_wait_for_call before a result counts as lost."""
SETTLE_SECONDS: Final = 15.0
"""For the ledger and the callback after a call's end. It bounds a hang: most arrive within 50 ms."""
POLL_SECONDS: Final = 0.1


Scenario = Callable[[DriverProcess], Awaitable[Judgement]]


@dataclass(slots=True, kw_only=True)
class ClientRun:
    client: Client
    environment: Environment
    stage: Stage
    folder: Path
    slow_seconds: float = SLOW_SECONDS
    quick: bool = False
    """Without the tool of 40 s."""
    only: Sequence[str] = ()
    """The scenarios to run. Default: all."""
    note: Callable[[str], None] = print

    async def run(self) -> dict[str, Judgement]:
        """The judgements by scenario; only `open` if the client cannot connect."""
        driver = DriverProcess(self.environment, self.client.driver, self.folder / "driver.log")
        try:
            opened = await self._open(driver, self._label(None))
            if opened.raised is not None:
                return {"open": self._told("open", judge.failed(f"raised {opened.raised}"))}
            judged = await self._run_in_session(driver)
            await driver.close()
            return judged | await self._run_in_own_sessions(driver)
        finally:
            await driver.kill()

    async def _run_in_session(self, driver: DriverProcess) -> dict[str, Judgement]:
        """The scenarios that share one session. After a failure the next one gets a fresh client."""
        scenarios: dict[str, Scenario] = {
            "list": self._list,
            "fast": self._fast,
            "slow": self._slow,
            "slow-40": self._slow_40,
            "typed": self._typed,
            "progress": self._progress,
            "cancel": self._cancel,
            "give up": self._give_up,
        }
        judged: dict[str, Judgement] = {}
        for name in self._wanted(scenarios):
            judged[name] = self._told(name, await scenarios[name](driver))
            if judged[name].verdict is Verdict.FAILED:
                await driver.kill()
                await self._open(driver, self._label(None))
        return judged

    async def _run_in_own_sessions(self, driver: DriverProcess) -> dict[str, Judgement]:
        scenarios: dict[str, Scenario] = {
            "callback": self._callbacks,
            "rejoin": self._rejoin,
            "restart": self._restart,
            "kill": self._kill,
            "server kill": self._kill_server,
            "patience": self._patience,
        }
        return {name: self._told(name, await scenarios[name](driver)) for name in self._wanted(scenarios)}

    def _wanted(self, scenarios: Mapping[str, "Scenario"]) -> list[str]:
        left_out = {"patience", *(["slow-40"] if self.quick else [])}
        return [name for name in scenarios if name in (self.only or scenarios.keys() - left_out)]

    async def _list(self, driver: DriverProcess) -> Judgement:
        return judge.judge_list(await driver.list_tools(), STAGE_TOOLS)

    async def _fast(self, driver: DriverProcess) -> Judgement:
        return judge.judge_call(await self._observe(driver, "fast", None))

    async def _slow(self, driver: DriverProcess) -> Judgement:
        return judge.judge_call(await self._observe(driver, "slow", self.slow_seconds))

    async def _slow_40(self, driver: DriverProcess) -> Judgement:
        return judge.judge_call(await self._observe(driver, "slow", FULL_SECONDS))

    async def _typed(self, driver: DriverProcess) -> Judgement:
        return judge.judge_call(await self._observe(driver, "measure", self.slow_seconds))

    async def _progress(self, driver: DriverProcess) -> Judgement:
        if not self.client.shows_progress:
            return Judgement(Verdict.NOT_OFFERED, "no progress callback")
        return judge.judge_progress(await self._observe(driver, "report", PROGRESS_SECONDS))

    async def _cancel(self, driver: DriverProcess) -> Judgement:
        key = new_key()
        answer = await driver.call("slow", {"key": key, "seconds": ENDLESS_SECONDS})
        call_id = judge.find_call_id(answer.text)
        cancelled = Answer() if call_id is None else await driver.call("ringback_cancel_call", {"call_id": call_id})
        await wait_until(lambda: self.stage.runs(key).cancelled == 1)
        return judge.judge_cancel(self._observed(answer, key), cancelled)

    async def _give_up(self, driver: DriverProcess) -> Judgement:
        if not self.client.gives_up:
            return Judgement(Verdict.NOT_OFFERED, "calls cannot be given up")
        key = new_key()
        gave_up = await driver.call("slow", {"key": key, "seconds": self.slow_seconds}, cancel_after=BEGIN_SECONDS)
        after = await self._observe(driver, "fast", None)
        await wait_until(lambda: self._has_ended(key))
        return judge.judge_give_up(gave_up, after, self.stage.runs(key))

    async def _callbacks(self, driver: DriverProcess) -> Judgement:
        observed: dict[str, ObservedCall] = {}
        for way in self.client.ways:
            label = self._label(way)
            opened = await self._open(driver, label)
            if opened.raised is not None:
                observed[way] = ObservedCall(answer=opened, outcome="", runs=judge.Runs())
                continue
            observed[way] = await self._observe(driver, "fast", None, label)
            await driver.close()
        return judge.judge_callbacks(observed)

    async def _rejoin(self, driver: DriverProcess) -> Judgement:
        label = self._label(next(iter(self.client.ways), None))
        await self._open(driver, label)
        key = new_key()
        arguments = {"key": key, "seconds": self.slow_seconds}
        call = asyncio.create_task(driver.call("remember", arguments, meta=label.meta))
        await wait_until(lambda: self.stage.runs(key).started == 1)
        await driver.kill()
        await asyncio.gather(call, return_exceptions=True)
        opened = await self._open(driver, label)
        if opened.raised is not None:
            return judge.failed(f"the new client raised {opened.raised}")
        looks = await self._look_for(driver, "remember", key, label)
        await driver.close()
        return judge.judge_next_look(self._observed(Answer(), key, follow_ups=looks))

    async def _restart(self, driver: DriverProcess) -> Judgement:
        await self._open(driver, self._label(None))
        before = await self._observe(driver, "fast", None)
        await self.stage.restart(signal.SIGTERM)
        after = await self._observe(driver, "fast", None)
        await driver.close()
        judged = [judge.judge_call(before), judge.judge_call(after)]
        return next((each for each in judged if each.verdict is Verdict.FAILED), judged[0])

    async def _kill(self, driver: DriverProcess) -> Judgement:
        judgement = await self._judge_look_after_kill(driver, self.stage.ringback)
        await driver.kill()
        return judgement

    async def _kill_server(self, driver: DriverProcess) -> Judgement:
        judgement = await self._judge_look_after_kill(driver, self.stage.server)
        after = judge.judge_call(await self._observe(driver, "fast", None))
        await driver.kill()
        if judgement.verdict is Verdict.PASSED and after.verdict is not Verdict.PASSED:
            return judge.failed(f"the next call: {after.detail}")
        return judgement

    async def _patience(self, driver: DriverProcess) -> Judgement:
        if self.client.transport is Transport.BRIDGE:
            return Judgement(Verdict.NOT_OFFERED, "it has no other server than Ringback")
        opened = await self._open(driver, self._label(None), url=self.stage.server.mcp_url)
        if opened.raised is not None:
            return judge.failed(f"raised {opened.raised}")
        answer = await driver.call("slow", {"key": new_key(), "seconds": PATIENT_SECONDS})
        await driver.kill()
        return judge.judge_patience(answer, PATIENT_SECONDS)

    async def _judge_look_after_kill(self, driver: DriverProcess, killed: StageProcess) -> Judgement:
        """Kill a process during a call, start it again, and judge what the same client's next look says."""
        await self._open(driver, self._label(None))
        key = new_key()
        arguments = {"key": key, "seconds": self.slow_seconds}
        call = asyncio.create_task(driver.call("survive", arguments, cancel_after=GIVE_UP_SECONDS))
        await wait_until(lambda: self.stage.runs(key).started == 1)
        await killed.restart(signal.SIGKILL)
        answer = await call
        looks = await self._look_for(driver, "survive", key, None)
        judgement = judge.judge_next_look(self._observed(answer, key, follow_ups=looks))
        own = answer.raised or ("none" if answer.given_up else "")
        return replace(judgement, detail=judgement.detail + (f"; its own answer: {own}" if own else ""))

    async def _observe(
        self, driver: DriverProcess, tool: str, seconds: float | None, label: Label | None = None
    ) -> ObservedCall:
        """Call a tool, and do what its answer says."""
        key = new_key()
        arguments: dict[str, Any] = {"key": key} | ({} if seconds is None else {"seconds": seconds})
        answer = await driver.call(tool, arguments, meta=label.meta if label else None)
        follow_ups: list[Answer] = []
        call_id = judge.find_call_id(answer.text)
        if outcome_of(key) not in answer.text and call_id is not None:
            follow_ups = await self._wait_for_call(driver, call_id, key)
        await wait_until(lambda: self._has_ended(key) or answer.raised is not None)
        if label is not None:
            await wait_until(lambda: bool(self._sessions(label)))
        return self._observed(answer, key, label=label, follow_ups=follow_ups)

    async def _wait_for_call(self, driver: DriverProcess, call_id: str, key: str) -> list[Answer]:
        answers: list[Answer] = []
        for _ in range(LOOKS_MAX):
            answers.append(await driver.call(judge.WAIT_TOOL, {"call_id": call_id}))
            if answers[-1].raised is not None or is_final(answers[-1].text) or outcome_of(key) in answers[-1].text:
                break
        return answers

    async def _look_for(self, driver: DriverProcess, tool: str, key: str, label: Label | None) -> list[Answer]:
        """Find a call by its tool, first with its session if the client named one; then wait for it."""
        session = {} if label is None or label.way is None else {"client_session_id": label.session}
        looks = [await driver.call("ringback_list_calls", {"tool": tool} | session)]
        if looks[-1].raised is not None:
            looks.append(await driver.call("ringback_list_calls", {"tool": tool} | session))
        if session and judge.find_call_id(looks[-1].text) is None:
            looks.append(await driver.call("ringback_list_calls", {"tool": tool}))
        call_id = judge.find_call_id(looks[-1].text)
        return [*looks, *([] if call_id is None else await self._wait_for_call(driver, call_id, key))]

    async def _open(self, driver: DriverProcess, label: Label, *, url: str | None = None) -> Answer:
        url = url or f"{self.stage.url}{label.query}"
        match self.client.transport:
            case Transport.HTTP:
                return await driver.open(url=url, headers=label.headers)
            case Transport.BRIDGE:
                bridge = [sys.executable, "-m", "ringback", "mcp", "--url", self.stage.base_url, "--upstream", UPSTREAM]
                return await driver.open(url=url, command=[*bridge, *label.options])
            case Transport.COMMAND:
                words = [word.format(url=url) for word in self.client.command]
                added = [f"{name}:{value}" for name, value in label.headers.items()]
                return await driver.open(
                    url=url, command=[*words, *(word for each in added for word in ("--header", each))]
                )

    def _label(self, way: Way | None) -> Label:
        name = new_key()
        return Label(way=way, session=f"session-{name}", callback_url=f"{self.stage.receiver.url}/{name}")

    def _observed(
        self, answer: Answer, key: str, *, label: Label | None = None, follow_ups: list[Answer] | None = None
    ) -> ObservedCall:
        return ObservedCall(
            answer=answer,
            outcome=outcome_of(key),
            runs=self.stage.runs(key),
            follow_ups=follow_ups or [],
            sessions=self._sessions(label) if label else [],
            expected_session=label.session if label else None,
        )

    def _sessions(self, label: Label) -> list[str | None]:
        return self.stage.receiver.sessions_at(label.callback_url)

    def _has_ended(self, key: str) -> bool:
        runs = self.stage.runs(key)
        return runs.finished + runs.cancelled > 0

    def _told(self, name: str, judgement: Judgement) -> Judgement:
        self.note(f"{self.client.name:<26} {name:<9} {judgement.verdict:<12} {judgement.detail}")
        return judgement


def is_final(text: str) -> bool:
    """Whether Ringback's text says that the call has ended, so that another look cannot bring more."""
    return any(f"Status: {status}." in text for status in ("completed", "failed", "cancelled"))


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what other processes do; a judge decides about what has not happened until then."""
    ends_at = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while not holds() and asyncio.get_running_loop().time() < ends_at:  # noqa: ASYNC110 - another process cannot set an event
        await asyncio.sleep(POLL_SECONDS)
