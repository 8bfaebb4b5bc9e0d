"""HTTP upstreams that accept requests and answer none: they are shown, and none of their calls ends because of that."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams import session as upstream_session
from ringback.upstreams import silence_monitor
from ringback.upstreams.config import Isolation
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.clock import FastForwardClock
from tests.support.upstreams import (
    App,
    ControlledUpstream,
    OverriddenResponses,
    Receive,
    Scope,
    Send,
    make_app_of_era,
    make_http_config,
    make_legacy_app,
    open_upstreams,
    run_upstream_call,
    send_response,
    serving,
    wait_for_state,
    wait_until_true,
)


@dataclass
class FreezingApp:
    """An app whose server reads no request while it is frozen."""

    app: App
    runs: asyncio.Event = field(default_factory=asyncio.Event)
    posts: int = 0
    """Requests that have arrived since the app was made."""

    def __post_init__(self) -> None:
        self.runs.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.posts += scope.get("method") == "POST"
        if scope["type"] == "http":
            await self.runs.wait()
        await self.app(scope, receive, send)


def get_info(upstreams: UpstreamRegistry) -> Any:
    (info,) = upstreams.tool_catalog.list_upstreams()
    return info


@pytest.fixture(params=["modern", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def make_app(upstream: ControlledUpstream, era: str) -> FreezingApp:
    return FreezingApp(make_app_of_era(upstream.app(), era))


async def test_a_frozen_http_upstream_is_shown_as_unresponsive_until_it_answers_and_its_call_goes_on(era: str) -> None:
    """It was shown as ready until the deadlines of its calls, 7 days by default."""
    upstream = ControlledUpstream()
    app = make_app(upstream, era)
    async with serving(app) as server, open_upstreams(make_http_config(server.url), clock=FastForwardClock()) as known:
        call = asyncio.create_task(run_upstream_call(known, "hold"))
        await upstream.wait_until_held(1)
        app.runs.clear()
        await wait_for_state(known, "unresponsive")
        shown = get_info(known)
        app.runs.set()
        await wait_for_state(known, "ready")
        recovered = get_info(known)
        upstream.release.set()
        ending = await call

    assert ending.outcome is CallOutcome.RESULT
    assert (shown.last_error, shown.calls_in_flight) == ("unresponsive", 1)
    assert "ringback calls list --upstream stage" in shown.advice
    assert recovered.last_error is None


async def test_an_http_upstream_whose_tool_is_silent_and_that_answers_probes_stays_ready(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence_monitor, "PROBE_SECONDS", 3600.0)  # on a busy machine, an answer takes a while
    upstream = ControlledUpstream()
    app = make_app(upstream, era)
    async with serving(app) as server, open_upstreams(make_http_config(server.url), clock=FastForwardClock()) as known:
        call = asyncio.create_task(run_upstream_call(known, "hold"))
        await upstream.wait_until_held(1)
        before = app.posts
        await wait_until_true(lambda: app.posts >= before + 3)
        shown = get_info(known)
        upstream.release.set()
        await call

    assert (shown.state, shown.last_error) == ("ready", None)


@pytest.mark.parametrize(
    "body", [b"Not Found", b'{"jsonrpc": "2.0", "id": %d, "error": {"code": -32000, "message": "?"}}']
)
async def test_a_probe_that_a_server_answers_with_404_ends_no_session(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each probe, one in 35 seconds of a silent call, opened another session."""
    monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", 0.0)
    upstream, probes = ControlledUpstream(), list[Any]()

    async def refuse_ping(message: dict[str, Any], send: Send) -> None:
        probes.append(message["id"])
        is_json = body.startswith(b"{")
        content = body % message["id"] if is_json else body
        await send_response(send, 404, "application/json" if is_json else "text/plain", content)

    app = OverriddenResponses(make_legacy_app(upstream.app()), {"ping": refuse_ping})
    async with serving(app) as server, open_upstreams(make_http_config(server.url), clock=FastForwardClock()) as known:
        call = asyncio.create_task(run_upstream_call(known, "hold"))
        await upstream.wait_until_held(1)
        session = known.connections.shared["stage"].get_open_session()
        await wait_until_true(lambda: len(probes) >= 3)
        is_kept = known.connections.shared["stage"].get_open_session() is session
        upstream.release.set()
        ending = await call

    assert (ending.outcome, is_kept) == (CallOutcome.RESULT, True)


async def test_the_end_of_a_call_in_a_session_of_its_own_is_no_sign_of_life() -> None:
    """Its upstream was shown as ready for a minute, although it had sent nothing."""
    upstream = ControlledUpstream()
    app = make_app(upstream, "modern")
    async with serving(app) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.CALL)
        async with open_upstreams(config, clock=FastForwardClock()) as known:
            calls = [asyncio.create_task(run_upstream_call(known, "hold")) for _ in range(2)]
            await upstream.wait_until_held(2)
            app.runs.clear()
            await wait_for_state(known, "unresponsive")
            posts = app.posts
            await wait_until_true(lambda: app.posts >= posts + 2)  # a response that was under way has arrived meanwhile
            await wait_for_state(known, "unresponsive")
            since = get_info(known).state_since
            calls[0].cancel()
            await wait_until_true(lambda: get_info(known).calls_in_flight == 1)
            posts = app.posts
            await wait_until_true(lambda: app.posts >= posts + 2)
            shown = get_info(known)
            app.runs.set()
            upstream.release.set()
            await calls[1]

    assert (shown.state, shown.state_since) == ("unresponsive", since)


async def test_a_first_connection_that_gets_no_answer_is_shown_as_failing_once_a_call_is_refused_for_it() -> None:
    """It was shown as connecting, without an error, for two minutes."""
    app = make_app(ControlledUpstream(), "modern")
    app.runs.clear()
    async with serving(app) as server, open_upstreams(make_http_config(server.url), patience_seconds=0.2) as known:
        with pytest.raises(UpstreamUnreachable):
            await run_upstream_call(known, "echo")
        shown = get_info(known)
        app.runs.set()
        await wait_for_state(known, "ready")
        recovered = get_info(known)

    assert (shown.state, shown.last_error) == ("failing", "no_answer_in_time")
    assert "'url'" in shown.advice
    assert recovered.last_error is None
