"""Modern upstreams that are busy or being restarted: most speak both protocols, and must not become legacy ones."""

from dataclasses import replace
from typing import Any

import mcp_types
import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams import session_selection
from ringback.upstreams.config import Isolation
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_http_config,
    open_upstreams,
    respond_with,
    run_upstream_call,
    send_json,
    serving,
)


async def test_a_call_waits_while_a_modern_upstream_is_too_busy_for_the_probe_and_gets_no_legacy_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was rejected at once. With an older protocol, its server may know fewer tools and no tasks."""
    monkeypatch.setattr(session_selection, "OPEN_RETRY_SECONDS", 0.01)
    overrides: dict[str, ResponseOverride] = {}
    stage, handshakes = ControlledUpstream(), list[str]()

    async def respond_too_late(message: dict[str, Any], send: Send) -> None:
        handshakes.append(message["method"])
        if len(handshakes) == 3:
            overrides.clear()
        error = {"code": mcp_types.REQUEST_TIMEOUT, "message": "the client's own error after its time limit"}
        await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with serving(OverriddenResponses(stage.app(), overrides)) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.CALL)
        async with open_upstreams(config) as upstreams:
            assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT
            overrides |= {"server/discover": respond_too_late, "initialize": respond_too_late}
            assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT

    assert (handshakes, stage.versions) == (["server/discover"] * 3, ["2026-07-28"] * 2)


async def run_calls_around_a_restart(
    stage: ControlledUpstream, overrides: dict[str, ResponseOverride], *, discover: ResponseOverride
) -> None:
    """One call in the first session, and one that needs a second session, whose `server/discover` gets this response."""
    async with (
        serving(OverriddenResponses(stage.app(), overrides)) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        await run_upstream_call(upstreams, "echo")
        overrides["server/discover"] = discover
        session = upstreams.connections.shared["stage"].get_open_session()
        assert session is not None
        session.close_to_new_requests()
        await run_upstream_call(upstreams, "echo")


async def respond_with_internal_error(message: dict[str, Any], send: Send) -> None:
    error = {"code": mcp_types.INTERNAL_ERROR, "message": "no database"}
    await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": error})


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(respond_with(503, "text/html", b"<h1>Starting</h1>"), id="a proxy"),
        pytest.param(respond_with(429, "text/html", b"<h1>Slow down</h1>"), id="a proxy with a rate limit"),
        pytest.param(respond_with(200, "application/json", b"{", promised_bytes=9), id="a lost connection"),
        pytest.param(respond_with(500, "text/plain", b"Internal Server Error"), id="a failing server"),
        pytest.param(respond_with_internal_error, id="a server whose database is away"),
    ],
)
async def test_a_modern_upstream_that_is_being_restarted_stays_modern(failure: ResponseOverride) -> None:
    """Its next session was a legacy one, because it speaks both, and each call that had a task ended as unknown."""
    stage, overrides = ControlledUpstream(), dict[str, ResponseOverride]()

    async def fail_once(message: dict[str, Any], send: Send) -> None:
        overrides.clear()
        await failure(message, send)

    await run_calls_around_a_restart(stage, overrides, discover=fail_once)

    assert (overrides, stage.versions) == ({}, ["2026-07-28"] * 2)


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(respond_with(400, "text/plain", b"Bad Request: Missing session ID"), id="of an old SDK"),
        pytest.param(respond_with(404, "text/html", b"<h1>Not Found</h1>"), id="of a router"),
    ],
)
async def test_an_upstream_that_was_replaced_by_an_older_server_is_used_at_once(refusal: ResponseOverride) -> None:
    """After one refusal, and not after as many as those of a server that fails."""
    stage, overrides = ControlledUpstream(), dict[str, ResponseOverride]()
    refusals = 0

    async def refuse(message: dict[str, Any], send: Send) -> None:
        nonlocal refusals
        refusals += 1
        await refusal(message, send)

    await run_calls_around_a_restart(stage, overrides, discover=refuse)

    assert (refusals, stage.versions) == (1, ["2026-07-28", "2025-11-25"])
