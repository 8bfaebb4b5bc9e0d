"""Calls that a proxy in front of their upstream refuses because of too many requests (HTTP 429)."""

import asyncio
from typing import Any

import pytest

from ringback.backoff import Backoff
from ringback.domain.call import CallPhase
from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams.transports import throttled_calls
from tests.support.calls import make_call_to, request_cancel, running_with_app, wait_for_call
from tests.support.engine import Engine
from tests.support.upstreams import (
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_legacy_app,
    send_response,
)


class ThrottlingProxy(OverriddenResponses):
    """Refuses so many calls before it passes one on."""

    def __init__(self, upstream: ControlledUpstream, era: str, *, refusals: int) -> None:
        self._refusals = refusals
        self._overrides: dict[str, ResponseOverride] = {"tools/call": self._refuse}
        self.has_refused = asyncio.Event()
        app = upstream.app()
        super().__init__(make_legacy_app(app) if era == "legacy" else app, self._overrides)

    async def _refuse(self, message: dict[str, Any], send: Send) -> None:  # noqa: ARG002 - the names of an override
        self._refusals -= 1
        if not self._refusals:
            self._overrides.clear()
        self.has_refused.set()
        await send_response(send, 429, "text/html", b"<h1>Too Many Requests</h1>")


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_a_proxy_refuses_for_a_while_runs_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr(throttled_calls, "THROTTLE_BACKOFF", Backoff(first_seconds=0.01, longest_seconds=0.01))
    stage, call = ControlledUpstream(), make_call_to(engine, "echo")
    await engine.insert_calls(call)

    async with running_with_app(engine, ThrottlingProxy(stage, era, refusals=3)):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs, len(stage.calls)) == (CallOutcome.RESULT, 1, 1)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_waits_after_its_refusal_is_unsent_and_can_be_cancelled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr(throttled_calls, "THROTTLE_BACKOFF", Backoff(first_seconds=3600, longest_seconds=3600))
    stage, call = ControlledUpstream(), make_call_to(engine, "echo")
    await engine.insert_calls(call)
    proxy = ThrottlingProxy(stage, era, refusals=1)

    async with running_with_app(engine, proxy):
        await asyncio.wait_for(proxy.has_refused.wait(), WAIT_SECONDS)
        waiting = await wait_for_call(engine, call, lambda found: found.dispatched_at is None)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (waiting.phase, waiting.runs) == (CallPhase.RUNNING, 0)
    assert (ended.outcome, stage.calls) == (CallOutcome.CANCELLED, [])
