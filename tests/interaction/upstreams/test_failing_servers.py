"""Servers that are unreachable, killed, or hang, or send garbage: each call ends truthfully and others continue."""

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.protocol.errors import UpstreamError
from ringback.protocol.transport_errors import RESULT_BYTES_MAX
from ringback.upstreams import session as upstream_session
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.transports import guarded_http as transport
from scripts.ports import free_port
from tests.support.examples import CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.upstreams import (
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_app_of_older_sdk,
    make_http_config,
    make_legacy_app,
    make_python_config,
    open_bound_driver,
    open_upstreams,
    respond_with,
    respond_with_result,
    run_upstream_call,
    send_response,
    serving,
    wait_for_state,
)

UNREACHABLE_URL = UpstreamConfig(
    name="stage", transport=UpstreamTransport.STDIO, command="ringback-no-such-command", max_concurrent=1
)


def completion_message(ending: CallCompletion) -> str:
    assert ending.error is not None
    return ending.error["message"]


# -- away -------------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (UNREACHABLE_URL, "command_or_folder_not_found"),
        (make_http_config("http://127.0.0.1:1/mcp"), "cannot_connect"),
    ],
)
async def test_an_unreachable_upstream_is_waited_for_and_then_reported(config: UpstreamConfig, problem: str) -> None:
    async with open_upstreams(config, patience_seconds=0.2) as upstreams:
        await wait_for_state(upstreams, "failing")
        with pytest.raises(UpstreamUnreachable, match=problem.replace("_", " ")):
            await run_upstream_call(upstreams, "echo")
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert (info.state, info.last_error, info.connections) == ("failing", problem, 0)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-c", "import sys; sys.exit('ERROR: ACME_TOKEN is not set')"), "exit code 1: ERROR: ACME_TOKEN is not set"),
        (("-m", "no_such_module_of_acme"), "No module named no_such_module_of_acme"),
    ],
)
async def test_a_command_that_ends_at_once_says_why_in_the_warning_and_in_the_list(
    args: tuple[str, ...], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_upstreams(make_python_config(*args)) as upstreams:
        await wait_for_state(upstreams, "failing")
        (info,) = upstreams.tool_catalog.list_upstreams()

    warnings = [each for each in caplog.records if each.message == "upstream.failing" and each.levelname == "WARNING"]
    assert words in warnings[0].__dict__["error_output"]
    assert info.last_error == "connection_lost"
    assert words in str(info.error_output)
    assert "RINGBACK_LOG_LEVELS=upstreams=debug" in str(info.advice)


async def test_a_call_waits_for_an_upstream_that_is_just_starting() -> None:
    port = free_port()
    async with open_upstreams(make_http_config(f"http://127.0.0.1:{port}/mcp"), patience_seconds=0.1) as impatient:
        with pytest.raises(UpstreamUnreachable):
            await run_upstream_call(impatient, "echo")

    async with open_upstreams(make_http_config(f"http://127.0.0.1:{port}/mcp")) as upstreams:
        call = asyncio.create_task(run_upstream_call(upstreams, "echo", {"n": 1}))
        async with serving(ControlledUpstream().app(), port=port):
            assert (await call).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_call_to_a_killed_server_is_rejected() -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        open_upstreams(make_http_config(server.url), patience_seconds=0.2) as upstreams,
    ):
        await wait_for_state(upstreams, "ready")
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT
        call = replace(CALL, upstream="stage", tool="echo")
        async with open_bound_driver(upstreams, call) as session:
            await server.kill_server()
            first = await session.run_call(RecordingCallContext(call))
            second = await session.run_call(RecordingCallContext(call))

    assert isinstance(first, CallCompletion)
    assert isinstance(second, CallCompletion)
    assert (first.outcome, second.outcome) == (CallOutcome.REJECTED, CallOutcome.REJECTED)
    assert "could not be connected to" in completion_message(first)
    assert "before the request was sent" in completion_message(second)


@pytest.mark.parametrize("era", ["modern", "legacy", "legacy, with 400 for an unknown session"])
async def test_a_call_survives_a_restart_that_happens_before_it_is_sent(era: str) -> None:
    """On the legacy protocol the new server answers 404: it does not know the session, so the call has not run."""
    first, second = ControlledUpstream(), ControlledUpstream()
    wrap = {"modern": return_same_app, "legacy": make_legacy_app}.get(era, make_app_of_older_sdk)
    async with serving(wrap(first.app())) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")
        await server.kill_server()
        async with serving(wrap(second.app()), port=server.port):
            ending = await run_upstream_call(upstreams, "echo", {"n": 2})

    assert ending.outcome is CallOutcome.RESULT
    assert [call.arguments for call in second.calls] == [{"n": 2}]


@pytest.mark.parametrize("eras", ["modern, then legacy", "legacy, then modern"])
async def test_a_call_survives_a_restart_with_another_protocol(eras: str) -> None:
    """The new server refuses what it does not speak. Each call failed until Ringback restarted, too."""
    first, second = ControlledUpstream(), ControlledUpstream()
    wraps = (return_same_app, make_legacy_app) if eras.startswith("modern") else (make_legacy_app, return_same_app)
    async with serving(wraps[0](first.app())) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")
        await server.kill_server()
        async with serving(wraps[1](second.app()), port=server.port):
            ending = await run_upstream_call(upstreams, "echo", {"n": 2})

    assert ending.outcome is CallOutcome.RESULT
    assert [call.arguments for call in second.calls] == [{"n": 2}]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_in_flight_ends_well_although_others_had_to_reconnect(era: str) -> None:
    stage = ControlledUpstream()
    app = stage.app()
    wrap = make_legacy_app if era == "legacy" else return_same_app
    forgetting = OverriddenResponses(wrap(app), {"tool:spoiled": respond_with(404, "text/plain", b"no such session")})
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
    stage, runs = ControlledUpstream(), list[str]()

    async def run_and_fail(message: dict[str, Any], send: Send) -> None:
        runs.append(message["params"]["name"])
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "No such order"}}
        await send_response(send, 404, "application/json", json.dumps(error).encode())

    app = OverriddenResponses(make_legacy_app(stage.app()), {"tool:spoiled": run_and_fail})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")
        first = upstreams.connections.shared["stage"].get_open_session()
        ending = await run_upstream_call(upstreams, "spoiled")
        is_kept = upstreams.connections.shared["stage"].get_open_session() is first
        after = await run_upstream_call(upstreams, "echo")

    assert runs == ["spoiled"]
    assert (ending.outcome, completion_message(ending)) == (CallOutcome.UPSTREAM_ERROR, "No such order")
    assert is_kept == (accepted_seconds > 0)
    assert after.outcome is CallOutcome.RESULT


@pytest.mark.parametrize("form", ["[%b]", "%b"])
async def test_a_tool_whose_error_has_the_status_404_and_an_unusual_form_runs_once(form: str) -> None:
    """A batch (2025-03-26), or a text that is no UTF-8."""
    stage, runs = ControlledUpstream(), list[str]()

    async def run_and_fail(message: dict[str, Any], send: Send) -> None:
        runs.append(message["params"]["name"])
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "No such caf?"}}
        body = form.encode() % json.dumps(error).encode().replace(b"?", b"\xe9")
        await send_response(send, 404, "application/json", body)

    app = OverriddenResponses(make_legacy_app(stage.app()), {"tool:spoiled": run_and_fail})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        ending = await run_upstream_call(upstreams, "spoiled")

    assert runs == ["spoiled"]
    assert (ending.outcome, completion_message(ending)) == (
        CallOutcome.UPSTREAM_ERROR,
        "No such caf\N{REPLACEMENT CHARACTER}",
    )


async def test_a_method_that_an_upstream_answers_with_404_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may send this status with the error that it does not know a method, and knows the session."""
    monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", 0.0)

    async def refuse(message: dict[str, Any], send: Send) -> None:
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
        await send_response(send, 404, "application/json", json.dumps(error).encode())

    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), {"resources/list": refuse})
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

    def fail_with(status: int) -> ResponseOverride:
        async def fail(message: dict[str, Any], send: Send) -> None:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "No such order"}}
            await send_response(send, status, "application/json", json.dumps(error).encode())

        return fail

    overrides = {"tool:spoiled": fail_with(404), "tool:refused": fail_with(200)}
    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), overrides)
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "spoiled")
        session = upstreams.connections.shared["stage"].get_open_session()
        await run_upstream_call(upstreams, "echo")
        monkeypatch.setattr(upstream_session, "ACCEPTED_SECONDS", 0.0)
        refused = await run_upstream_call(upstreams, "refused")

        assert refused.outcome is CallOutcome.UPSTREAM_ERROR
        assert upstreams.connections.shared["stage"].get_open_session() is session


# -- killed -----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_whose_server_is_killed_are_unknown_and_later_ones_find_the_new_server(era: str) -> None:
    first, second = ControlledUpstream(), ControlledUpstream()
    wrap = make_legacy_app if era == "legacy" else return_same_app
    async with serving(wrap(first.app())) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        calls = [asyncio.create_task(run_upstream_call(upstreams, "hold", {"n": number})) for number in range(3)]
        await first.wait_until_held(3)
        await server.kill_server()
        endings = await asyncio.gather(*calls)
        async with serving(wrap(second.app()), port=server.port):
            later = await run_upstream_call(upstreams, "echo")

    assert [ending.outcome for ending in endings] == [CallOutcome.UNKNOWN] * 3
    assert later.outcome is CallOutcome.RESULT
    assert [call.name for call in second.calls] == ["echo"]


# -- garbage ----------------------------------------------------------------------------------------------------------------


async def _close_within_stream(message: dict[str, Any], send: Send) -> None:
    await send_response(send, 200, "text/event-stream", b"event: message\ndata: {", promised_bytes=1000)


async def _streams_nothing(message: dict[str, Any], send: Send) -> None:
    await send_response(send, 200, "text/event-stream", b": ping\n\n")


async def _streams_too_much(message: dict[str, Any], send: Send) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "x": "y" * RESULT_BYTES_MAX}})
    await send_response(send, 200, "text/event-stream", f"event: message\ndata: {body}\n\n".encode())


async def _streams_garbage(message: dict[str, Any], send: Send) -> None:
    await send_response(send, 200, "text/event-stream", b"event: message\ndata: {oops\n\n")


GARBAGE_RESPONSES: Final[dict[str, tuple[ResponseOverride, CallOutcome, str]]] = {
    "html": (respond_with(200, "text/html", b"<h1>Hello</h1>"), CallOutcome.UPSTREAM_ERROR, "HTTP 200 and text/html"),
    "broken JSON": (respond_with(200, "application/json", b"{oops"), CallOutcome.UPSTREAM_ERROR, "no MCP answer"),
    "a crash": (respond_with(500, "text/plain", b"secret traceback"), CallOutcome.UPSTREAM_ERROR, "HTTP 500"),
    "missing credentials": (
        respond_with(401, "application/json", b'{"error": "no"}'),
        CallOutcome.REJECTED,
        "requires credentials",
    ),
    "nothing": (respond_with(202, "text/plain", b""), CallOutcome.UPSTREAM_ERROR, "HTTP 202"),
    "half of it": (
        respond_with(200, "application/json", b'{"jsonrpc"', promised_bytes=999),
        CallOutcome.UNKNOWN,
        "middle of the answer",
    ),
    "another result": (respond_with_result({"tools": []}), CallOutcome.UPSTREAM_ERROR, "not a CallToolResult"),
    "a question": (
        respond_with_result({"resultType": "input_required", "inputRequests": {}}),
        CallOutcome.UPSTREAM_ERROR,
        "asks for input",
    ),
    "half a stream": (_close_within_stream, CallOutcome.UNKNOWN, "before it answered"),
    "an empty stream": (_streams_nothing, CallOutcome.UNKNOWN, "before it answered"),
    "an endless event": (_streams_too_much, CallOutcome.UPSTREAM_ERROR, "larger than"),
    "a broken event": (_streams_garbage, CallOutcome.UPSTREAM_ERROR, "no JSON-RPC message"),
}


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("spoiling", "outcome", "message"),
    [pytest.param(*case, id=name) for name, case in GARBAGE_RESPONSES.items()],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_garbage_ends_its_own_call_truthfully_and_no_other(
    era: str, spoiling: ResponseOverride, outcome: CallOutcome, message: str
) -> None:
    stage = ControlledUpstream()
    wrap = make_legacy_app if era == "legacy" else return_same_app
    async with (
        serving(OverriddenResponses(wrap(stage.app()), {"tool:spoiled": spoiling})) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        held = asyncio.create_task(run_upstream_call(upstreams, "hold"))
        await stage.wait_until_held(1)
        ending = await run_upstream_call(upstreams, "spoiled")
        stage.release.set()
        other = await held

    assert ending.outcome is outcome
    assert message in completion_message(ending)
    assert "secret" not in completion_message(ending)
    assert other.outcome is CallOutcome.RESULT


@pytest.mark.parametrize("size", [2 * 1024**2, 12 * 1024**2])
async def test_a_large_result_comes_whole_as_json_and_as_a_stream(size: int) -> None:
    large = {"content": [{"type": "text", "text": "x" * size}]}

    async def streamed(message: dict[str, Any], send: Send) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": large})
        await send_response(send, 200, "text/event-stream", f"event: message\ndata: {body}\n\n".encode())

    spoilings = {"tool:spoiled": respond_with_result(large), "tool:echo": streamed}
    async with (
        serving(OverriddenResponses(ControlledUpstream().app(), spoilings)) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        for tool in ("spoiled", "echo"):
            ending = await run_upstream_call(upstreams, tool)
            assert ending.result is not None
            assert len(ending.result) > size


async def test_a_result_that_breaks_its_output_schema_passes_with_the_meta_that_hosts_need() -> None:
    result: dict[str, Any] = {
        "content": [],
        "structuredContent": {"n": "no number"},
        "_meta": {"ui/resource": "ui://x"},
        "extra": None,
    }
    async with (
        serving(
            OverriddenResponses(ControlledUpstream().app(), {"tool:spoiled": respond_with_result(result)})
        ) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        ending = await run_upstream_call(upstreams, "spoiled")

    assert ending.result is not None
    assert json.loads(ending.result) == result


# -- hanging ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_hung_upstream_can_be_given_up_and_does_not_hold_back_other_calls(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not answer the cancellation either, which the SDK sends in line with the calls that follow."""
    monkeypatch.setattr(transport, "NOTIFICATION_TIMEOUT_SECONDS", 0.1)
    hanging = asyncio.Event()

    async def hang(message: dict[str, Any], send: Send) -> None:
        hanging.set()
        await asyncio.Event().wait()

    wrap = make_legacy_app if era == "legacy" else return_same_app
    spoiled = OverriddenResponses(
        wrap(ControlledUpstream().app()), {"tool:spoiled": hang, "notifications/cancelled": hang}
    )
    async with serving(spoiled) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        call = asyncio.create_task(run_upstream_call(upstreams, "spoiled"))
        async with asyncio.timeout(WAIT_SECONDS):
            await hanging.wait()
        call.cancel()
        await asyncio.wait({call})
        after = await run_upstream_call(upstreams, "echo")

    assert call.cancelled()
    assert after.outcome is CallOutcome.RESULT


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


async def test_a_redirect_within_the_origin_is_followed_with_the_whole_message() -> None:
    app = ControlledUpstream().app()

    async def moved(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/old":
            await send({"type": "http.response.start", "status": 307, "headers": [(b"location", b"/mcp")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    async with (
        serving(moved) as server,
        open_upstreams(make_http_config(server.url.replace("/mcp", "/old"))) as upstreams,
    ):
        ending = await run_upstream_call(upstreams, "echo", {"n": 1})

    assert ending.outcome is CallOutcome.RESULT


def return_same_app(app: Any) -> Any:
    return app
