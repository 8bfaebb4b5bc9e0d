"""HTTP errors of one tool or method: each call ends truthfully, and the session of all calls ends only if it is forgotten."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.protocol.errors import UpstreamError
from ringback.upstreams import session as upstream_session
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    get_error_message,
    make_app_of_era,
    make_http_config,
    make_legacy_app,
    open_upstreams,
    respond_with,
    respond_with_error,
    run_upstream_call,
    send_response,
    serving,
    wait_for_state,
)


class CountedResponses:
    """The responses of an override, and how many requests have had one."""

    def __init__(self, override: ResponseOverride) -> None:
        self._override = override
        self.count = 0

    async def __call__(self, message: dict[str, Any], send: Send) -> None:
        self.count += 1
        await self._override(message, send)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_in_flight_ends_well_although_others_had_to_reconnect(era: str) -> None:
    stage = ControlledUpstream()
    overrides = {"tool:spoiled": respond_with(404, "text/plain", b"no such session")}
    forgetting = OverriddenResponses(make_app_of_era(stage.app(), era), overrides)
    async with serving(forgetting) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        held = asyncio.create_task(run_upstream_call(upstreams, "hold"))
        await stage.wait_until_held(1)
        spoiled = await run_upstream_call(upstreams, "spoiled")
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT
        stage.release.set()
        ending = await held

    assert ending.outcome is CallOutcome.RESULT
    assert spoiled.outcome is (CallOutcome.REJECTED if era == "legacy" else CallOutcome.UPSTREAM_ERROR)


@pytest.mark.parametrize("accepted_seconds", [60.0, 0.0])
async def test_a_tool_whose_error_has_the_status_404_runs_once(
    accepted_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of the request shows that its server has read it. The specification asks for a new session after a 404."""
    monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", accepted_seconds)
    spoiled = CountedResponses(respond_with_error(404, -32000, "No such order"))
    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), {"tool:spoiled": spoiled})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")
        first = upstreams.connections.shared["stage"].get_open_session()
        ending = await run_upstream_call(upstreams, "spoiled")
        is_kept = upstreams.connections.shared["stage"].get_open_session() is first
        after = await run_upstream_call(upstreams, "echo")

    assert spoiled.count == 1
    assert (ending.outcome, get_error_message(ending)) == (CallOutcome.UPSTREAM_ERROR, "No such order")
    assert is_kept == (accepted_seconds > 0)
    assert after.outcome is CallOutcome.RESULT


@pytest.mark.parametrize("form", ["[%b]", "%b"])
async def test_a_tool_whose_error_has_the_status_404_and_an_unusual_form_runs_once(form: str) -> None:
    """A batch (2025-03-26), or a text that is no UTF-8."""

    async def fail(message: dict[str, Any], send: Send) -> None:
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "No such caf?"}}
        body = form.encode() % json.dumps(error).encode().replace(b"?", b"\xe9")
        await send_response(send, 404, "application/json", body)

    spoiled = CountedResponses(fail)
    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), {"tool:spoiled": spoiled})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        ending = await run_upstream_call(upstreams, "spoiled")

    assert spoiled.count == 1
    assert (ending.outcome, get_error_message(ending)) == (
        CallOutcome.UPSTREAM_ERROR,
        "No such caf\N{REPLACEMENT CHARACTER}",
    )


async def test_a_method_that_an_upstream_answers_with_404_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may send this status with the error that it does not know a method, and knows the session."""
    monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", 0.0)
    overrides = {"resources/list": respond_with_error(404, -32601, "Method not found")}
    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), overrides)
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await wait_for_state(upstreams, "ready")
        session = upstreams.connections.shared["stage"].get_open_session()
        assert session is not None
        with pytest.raises(UpstreamError, match="answered with an error"):
            await session.send_request("resources/list", {})
        assert upstreams.connections.shared["stage"].get_open_session() is session


async def test_a_session_that_served_a_call_after_such_an_error_is_not_ended_by_another_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call in between shows that the upstream knows the session. A server with state loses it with the session."""
    monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", 60.0)
    overrides: dict[str, ResponseOverride] = {
        "tool:spoiled": respond_with_error(404, -32000, "No such order"),
        "tool:refused": respond_with_error(200, -32000, "No such order"),
    }
    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), overrides)
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "spoiled")
        session = upstreams.connections.shared["stage"].get_open_session()
        await run_upstream_call(upstreams, "echo")
        monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", 0.0)
        refused = await run_upstream_call(upstreams, "refused")

        assert refused.outcome is CallOutcome.UPSTREAM_ERROR
        assert upstreams.connections.shared["stage"].get_open_session() is session


@pytest.mark.requirement("R11")
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer configured"}], ids=["without", "with credentials"])
async def test_a_tool_that_answers_401_leaves_the_session_of_all_calls_open(headers: dict[str, str]) -> None:
    """Each of its calls ended two sessions, and soon the calls of other principals waited ten seconds for the next one."""
    stage = ControlledUpstream()
    refused = respond_with(401, "text/plain", b"not for you")
    async with serving(OverriddenResponses(stage.app(), {"tool:refuse": refused})) as server:
        config = replace(make_http_config(server.url), headers=headers)
        async with open_upstreams(config) as upstreams:
            await run_upstream_call(upstreams, "echo")
            session = upstreams.connections.shared["stage"].get_open_session()
            outcomes = [(await run_upstream_call(upstreams, "refuse")).outcome for _ in range(3)]
            assert upstreams.connections.shared["stage"].get_open_session() is session

    assert outcomes == [CallOutcome.REJECTED] * 3
