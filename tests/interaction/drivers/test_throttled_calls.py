"""Calls that a proxy in front of their upstream refuses because of too many requests (HTTP 429)."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ringback.backoff import Backoff
from ringback.domain.call import CallPhase
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upstream_rows import UpstreamControl, UpstreamIntake
from ringback.runner.leased_call import LeasedCall
from ringback.upstreams.config import Isolation
from ringback.upstreams.transports import throttled_calls
from tests.support.calls import (
    insert_call_to,
    make_call_to,
    request_cancel,
    running_runner,
    running_with_app,
    wait_for_call,
)
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.upstreams import (
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_app_of_era,
    make_http_config,
    send_response,
    serving,
)

pytestmark = pytest.mark.requirement("R33")


@pytest.fixture
def set_pause(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how long a refused call waits."""

    def set_seconds(seconds: float) -> None:
        backoff = Backoff(first_seconds=seconds, longest_seconds=seconds)
        monkeypatch.setattr(throttled_calls, "THROTTLE_BACKOFF", backoff)

    return set_seconds


SetPause = Callable[[float], None]


class RefusedTool:
    """Refuses each call of one tool, and counts the refusals."""

    def __init__(self) -> None:
        self.refusals = 0
        self._changed = asyncio.Event()

    async def wait_until_refused(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.refusals < count:
                self._changed.clear()
                await self._changed.wait()

    async def __call__(self, message: dict[str, Any], send: Send) -> None:  # noqa: ARG002 - the names of an override
        self.refusals += 1
        self._changed.set()
        await send_response(send, 429, "text/html", b"<h1>Too Many Requests</h1>")


@asynccontextmanager
async def running_with_refused_tool(
    engine: Engine, refused: RefusedTool, era: str, **config: Any
) -> AsyncGenerator[None]:
    """Run calls to an upstream that refuses those of its tool `steps`."""
    refusing = OverriddenResponses(make_app_of_era(ControlledUpstream().app(), era), {"tool:steps": refused})
    async with serving(refusing) as server, running_runner(engine, replace(make_http_config(server.url), **config)):
        yield


class ThrottlingProxy(OverriddenResponses):
    """Refuses so many calls before it passes one on."""

    def __init__(self, upstream: ControlledUpstream, era: str, *, refusals: int) -> None:
        self._refusals = refusals
        self._overrides: dict[str, ResponseOverride] = {"tools/call": self._refuse}
        self.has_refused = asyncio.Event()
        super().__init__(make_app_of_era(upstream.app(), era), self._overrides)

    async def _refuse(self, message: dict[str, Any], send: Send) -> None:  # noqa: ARG002 - the names of an override
        self._refusals -= 1
        if not self._refusals:
            self._overrides.clear()
        self.has_refused.set()
        await send_response(send, 429, "text/html", b"<h1>Too Many Requests</h1>")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_a_proxy_refuses_for_a_while_runs_once(engine: Engine, set_pause: SetPause, era: str) -> None:
    set_pause(0.01)
    stage, call = ControlledUpstream(), await insert_call_to(engine, "echo")

    async with running_with_app(engine, ThrottlingProxy(stage, era, refusals=3)):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs, len(stage.calls)) == (CallOutcome.RESULT, 1, 1)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_that_wait_after_their_refusal_leave_their_upstream_to_other_principals(
    engine: Engine, set_pause: SetPause, era: str
) -> None:
    """A pause takes up to an hour. The calls of one principal, whose quota was spent, kept all places of the upstream."""
    set_pause(3600)
    refused = RefusedTool()
    throttled = [make_call_to(engine, "steps", principal=ALICE) for _ in range(12)]
    others = [make_call_to(engine, "echo", principal=BOB) for _ in range(6)]
    await engine.insert_calls(*throttled, *others)

    async with running_with_refused_tool(engine, refused, era, max_concurrent=4):
        ended = await engine.wait_until_final(*others)
        phases = Counter([(await engine.read_call(call)).phase for call in throttled])

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}
    assert refused.refusals <= 4, "its queued calls would be refused, too"
    assert phases[CallPhase.QUEUED] >= 8


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_that_wait_after_their_refusal_leave_a_session_to_those_of_other_principals(
    engine: Engine, set_pause: SetPause, era: str
) -> None:
    set_pause(3600)
    refused = RefusedTool()
    throttled = [make_call_to(engine, "steps", principal=Principal(name)) for name in ("carol", "dave")]
    other = make_call_to(engine, "echo", principal=BOB)
    await engine.insert_calls(*throttled)

    async with running_with_refused_tool(engine, refused, era, max_concurrent=2, isolation=Isolation.PRINCIPAL):
        await refused.wait_until_refused(len(throttled))
        await engine.insert_calls(other)
        (ended,) = await engine.wait_until_final(other)

    assert ended.outcome is CallOutcome.RESULT


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_waits_after_its_refusal_is_unsent_and_can_be_cancelled(
    engine: Engine, set_pause: SetPause, era: str
) -> None:
    set_pause(3600)
    stage, call = ControlledUpstream(), await insert_call_to(engine, "echo")
    proxy = ThrottlingProxy(stage, era, refusals=1)

    async with running_with_app(engine, proxy):
        await asyncio.wait_for(proxy.has_refused.wait(), WAIT_SECONDS)
        waiting = await wait_for_call(engine, call, lambda found: found.dispatched_at is None)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (waiting.phase, waiting.runs) == (CallPhase.RUNNING, 0)
    assert (ended.outcome, stage.calls) == (CallOutcome.CANCELLED, [])


async def test_calls_that_return_to_a_busy_upstream_after_their_refusal_all_run_once(
    engine: Engine, set_pause: SetPause
) -> None:
    set_pause(0.01)
    stage, calls = ControlledUpstream(), [make_call_to(engine, "echo", principal=each) for each in (ALICE, BOB) * 8]
    await engine.insert_calls(*calls)

    async with (
        serving(ThrottlingProxy(stage, "modern", refusals=20)) as server,
        running_runner(engine, replace(make_http_config(server.url), max_concurrent=2)),
    ):
        ended = await engine.wait_until_final(*calls)

    assert {(call.outcome, call.runs) for call in ended} == {(CallOutcome.RESULT, 1)}
    assert len(stage.calls) == len(calls)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_waits_after_its_refusal_is_not_sent_to_an_upstream_that_is_paused_meanwhile(
    engine: Engine, set_pause: SetPause, era: str
) -> None:
    """It was sent at the end of its wait, up to an hour later, during the maintenance for which its upstream was paused."""
    set_pause(0.01)
    stage, call = ControlledUpstream(), make_call_to(engine, "echo")
    overrides = dict[str, ResponseOverride]()

    async def pause_and_refuse(message: dict[str, Any], send: Send) -> None:
        overrides.clear()
        await set_intake(engine, UpstreamIntake.PAUSED)
        await send_response(send, 429, "text/html", b"<h1>Too Many Requests</h1>")

    overrides["tools/call"] = pause_and_refuse
    app = make_app_of_era(stage.app(), era)
    await engine.insert_calls(call)
    async with running_with_app(engine, OverriddenResponses(app, overrides)):
        waiting = await wait_for_call(engine, call, lambda found: found.phase is CallPhase.QUEUED and not overrides)
        sent_while_paused = len(stage.calls)
        await set_intake(engine, UpstreamIntake.OPEN)
        (ended,) = await engine.wait_until_final(call)

    assert (waiting.dispatched_at, waiting.runs, sent_while_paused) == (None, 0, 0)
    assert (ended.outcome, ended.runs, len(stage.calls)) == (CallOutcome.RESULT, 1, 1)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("end", ["cancelled", "handed back"])
async def test_a_wait_after_a_refusal_ends_with_the_run_of_its_call(
    engine: Engine, set_pause: SetPause, monkeypatch: pytest.MonkeyPatch, era: str, end: str
) -> None:
    """The SDK sends in a task that outlives the request of a legacy session. It waited on, with the arguments of the call."""
    set_pause(3600 if end == "cancelled" else 0.01)
    has_ended, call = asyncio.Event(), make_call_to(engine, "echo")
    wait_without_permit = LeasedCall.wait_without_permit

    async def wait(self: LeasedCall, seconds: float) -> None:
        if end == "handed back":
            await set_intake(engine, UpstreamIntake.PAUSED)
        try:
            await wait_without_permit(self, seconds)
        finally:
            has_ended.set()

    monkeypatch.setattr(LeasedCall, "wait_without_permit", wait)
    await engine.insert_calls(call)
    proxy = ThrottlingProxy(ControlledUpstream(), era, refusals=1)
    async with running_with_app(engine, proxy):
        await asyncio.wait_for(proxy.has_refused.wait(), WAIT_SECONDS)
        if end == "cancelled":
            await wait_for_call(engine, call, lambda found: found.dispatched_at is None)
            await request_cancel(engine, call)
            await engine.wait_until_final(call)
        else:
            await wait_for_call(engine, call, lambda found: found.phase is CallPhase.QUEUED)
        await asyncio.wait_for(has_ended.wait(), WAIT_SECONDS)


async def set_intake(engine: Engine, intake: UpstreamIntake) -> None:
    async def save(tx: Transaction) -> None:
        if intake is UpstreamIntake.OPEN:
            await tx.upstream_controls.remove("stage")
        else:
            await tx.upstream_controls.save(UpstreamControl(upstream="stage", intake=intake, changed_at=tx.now()))
        tx.notify(CALL_QUEUED_TOPIC)

    await engine.store.write(save)


async def test_a_call_that_another_process_sends_does_not_go_on_to_say_when_it_is_sent_again(
    engine: Engine, set_pause: SetPause
) -> None:
    """Its tool may run for hours and report no progress."""
    set_pause(3600)
    stage, call = ControlledUpstream(), await insert_call_to(engine, "hold", deadline_in=7200.0)
    async with running_with_app(engine, ThrottlingProxy(stage, "modern", refusals=1)):
        waiting = await wait_for_call(engine, call, lambda found: found.progress is not None)
    async with running_with_app(engine, stage.app()):
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        sent = await wait_for_call(engine, call, lambda found: found.progress != waiting.progress)
        stage.release.set()
        await engine.wait_until_final(call)

    assert waiting.progress is not None
    assert "is sent again at" in (waiting.progress.message or "")
    assert sent.progress is not None
    assert sent.progress.message == "The call was sent again."


async def test_a_call_that_ends_while_it_waits_after_its_refusal_does_not_say_that_it_is_sent_again(
    engine: Engine, set_pause: SetPause
) -> None:
    set_pause(3600)
    call = await insert_call_to(engine, "echo")
    async with running_with_app(engine, ThrottlingProxy(ControlledUpstream(), "modern", refusals=1)):
        await wait_for_call(engine, call, lambda found: found.progress is not None)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert ended.progress is not None
    assert ended.progress.message == "The upstream took no more requests (HTTP 429), and the call was not sent again."
