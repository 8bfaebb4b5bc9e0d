"""Servers that are away, are killed, forget, hang, or answer garbage: each call ends truthfully, and the others go on."""

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

import pytest

from ringback.domain.call import CallCompletion, CallOutcome
from ringback.runner import link, transport
from ringback.runner.config import UpstreamTransport, UpstreamConfig
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.transport import RESULT_BYTES_MAX
from tests.support.desks import PaperDesk
from tests.support.examples import CALL
from tests.support.upstreams import (
    WAIT_SECONDS,
    Send,
    Spoiled,
    Spoiling,
    Stage,
    answer,
    answering,
    answering_result,
    drive,
    free_port,
    http_config,
    legacy_only,
    opened,
    serving,
    until_state,
)

NOWHERE = UpstreamConfig(name="stage", transport=UpstreamTransport.STDIO, command="ringback-no-such-command", max_concurrent=1)


def message_of(ending: CallCompletion) -> str:
    assert ending.error is not None
    return ending.error["message"]


# -- away -------------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (NOWHERE, "command_or_folder_not_found"),
        (http_config("http://127.0.0.1:1/mcp"), "cannot_connect"),
    ],
)
async def test_an_upstream_that_is_away_is_waited_for_and_then_told_of(config: UpstreamConfig, problem: str) -> None:
    async with opened(config, patience_seconds=0.2) as upstreams:
        await until_state(upstreams, "failing")
        with pytest.raises(UpstreamUnreachable, match=problem.replace("_", " ")):
            await drive(upstreams, "echo")
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert (info.state, info.last_error) == ("failing", problem)


async def test_a_call_waits_for_an_upstream_that_is_just_starting() -> None:
    port = free_port()
    async with opened(http_config(f"http://127.0.0.1:{port}/mcp"), patience_seconds=0.1) as impatient:
        with pytest.raises(UpstreamUnreachable):
            await drive(impatient, "echo")

    async with opened(http_config(f"http://127.0.0.1:{port}/mcp")) as upstreams:
        call = asyncio.create_task(drive(upstreams, "echo", {"n": 1}))
        async with serving(Stage().app(), port=port):
            assert (await call).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_call_that_nobody_listens_for_any_more_is_rejected() -> None:
    async with serving(Stage().app()) as server, opened(http_config(server.url), patience_seconds=0.2) as upstreams:
        await until_state(upstreams, "ready")
        assert (await drive(upstreams, "echo")).outcome is CallOutcome.RESULT
        call = replace(CALL, upstream="stage", tool="echo")
        async with upstreams.open_call_session(call) as session:
            await server.kill()
            first = await session.run_call(PaperDesk(call))
            second = await session.run_call(PaperDesk(call))

    assert isinstance(first, CallCompletion)
    assert isinstance(second, CallCompletion)
    assert (first.outcome, second.outcome) == (CallOutcome.REJECTED, CallOutcome.REJECTED)
    assert "could not be connected to" in message_of(first)
    assert "before the request was sent" in message_of(second)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_survives_a_restart_that_happens_before_it_is_sent(era: str) -> None:
    """On the old protocol the new server answers 404: it does not know the session, so the call has not run."""
    first, second = Stage(), Stage()
    wrap = legacy_only if era == "legacy" else _same
    async with serving(wrap(first.app())) as server, opened(http_config(server.url)) as upstreams:
        await drive(upstreams, "echo")
        await server.kill()
        async with serving(wrap(second.app()), port=server.port):
            ending = await drive(upstreams, "echo", {"n": 2})

    assert ending.outcome is CallOutcome.RESULT
    assert [call.arguments for call in second.calls] == [{"n": 2}]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_in_flight_ends_well_although_others_had_to_reconnect(era: str) -> None:
    stage = Stage()
    app = stage.app()
    wrap = legacy_only if era == "legacy" else _same
    forgetting = Spoiled(wrap(app), {"tool:spoiled": answering(404, "text/plain", b"no such session")})
    async with serving(forgetting) as server, opened(http_config(server.url)) as upstreams:
        held = asyncio.create_task(drive(upstreams, "hold"))
        await stage.until_inside(1)
        spoiled = await drive(upstreams, "spoiled")
        assert (await drive(upstreams, "echo")).outcome is CallOutcome.RESULT
        stage.release.set()
        ending = await held

    assert ending.outcome is CallOutcome.RESULT
    assert spoiled.outcome is (CallOutcome.REJECTED if era == "legacy" else CallOutcome.UPSTREAM_ERROR)


# -- killed -----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_whose_server_is_killed_are_unknown_and_later_ones_find_the_new_server(era: str) -> None:
    first, second = Stage(), Stage()
    wrap = legacy_only if era == "legacy" else _same
    async with serving(wrap(first.app())) as server, opened(http_config(server.url)) as upstreams:
        calls = [asyncio.create_task(drive(upstreams, "hold", {"n": number})) for number in range(3)]
        await first.until_inside(3)
        await server.kill()
        endings = await asyncio.gather(*calls)
        async with serving(wrap(second.app()), port=server.port):
            later = await drive(upstreams, "echo")

    assert [ending.outcome for ending in endings] == [CallOutcome.UNKNOWN] * 3
    assert later.outcome is CallOutcome.RESULT
    assert [call.name for call in second.calls] == ["echo"]


# -- garbage ----------------------------------------------------------------------------------------------------------------


async def _breaks_off_stream(message: dict[str, Any], send: Send) -> None:
    await answer(send, 200, "text/event-stream", b"event: message\ndata: {", promised_bytes=1000)


async def _streams_nothing(message: dict[str, Any], send: Send) -> None:
    await answer(send, 200, "text/event-stream", b": ping\n\n")


async def _streams_too_much(message: dict[str, Any], send: Send) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "x": "y" * RESULT_BYTES_MAX}})
    await answer(send, 200, "text/event-stream", f"event: message\ndata: {body}\n\n".encode())


async def _streams_garbage(message: dict[str, Any], send: Send) -> None:
    await answer(send, 200, "text/event-stream", b"event: message\ndata: {oops\n\n")


GARBAGE: Final[dict[str, tuple[Spoiling, CallOutcome, str]]] = {
    "html": (answering(200, "text/html", b"<h1>Hello</h1>"), CallOutcome.UPSTREAM_ERROR, "HTTP 200 and text/html"),
    "broken JSON": (answering(200, "application/json", b"{oops"), CallOutcome.UPSTREAM_ERROR, "no MCP answer"),
    "a crash": (answering(500, "text/plain", b"secret traceback"), CallOutcome.UPSTREAM_ERROR, "HTTP 500"),
    "a closed door": (answering(401, "application/json", b'{"error": "no"}'), CallOutcome.REJECTED, "wants credentials"),
    "nothing": (answering(202, "text/plain", b""), CallOutcome.UPSTREAM_ERROR, "HTTP 202"),
    "half of it": (
        answering(200, "application/json", b'{"jsonrpc"', promised_bytes=999),
        CallOutcome.UNKNOWN,
        "middle of the answer",
    ),
    "another result": (answering_result({"tools": []}), CallOutcome.UPSTREAM_ERROR, "no CallToolResult"),
    "a question": (
        answering_result({"resultType": "input_required", "inputRequests": {}}),
        CallOutcome.UPSTREAM_ERROR,
        "asks for input",
    ),
    "half a stream": (_breaks_off_stream, CallOutcome.UNKNOWN, "before it answered"),
    "an empty stream": (_streams_nothing, CallOutcome.UNKNOWN, "before it answered"),
    "an endless event": (_streams_too_much, CallOutcome.UPSTREAM_ERROR, "larger than"),
    "a broken event": (_streams_garbage, CallOutcome.UPSTREAM_ERROR, "no JSON-RPC message"),
}


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("spoiling", "outcome", "told"),
    [pytest.param(*case, id=name) for name, case in GARBAGE.items()],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_garbage_ends_its_own_call_truthfully_and_no_other(
    era: str, spoiling: Spoiling, outcome: CallOutcome, told: str
) -> None:
    stage = Stage()
    wrap = legacy_only if era == "legacy" else _same
    async with (
        serving(Spoiled(wrap(stage.app()), {"tool:spoiled": spoiling})) as server,
        opened(http_config(server.url)) as upstreams,
    ):
        held = asyncio.create_task(drive(upstreams, "hold"))
        await stage.until_inside(1)
        ending = await drive(upstreams, "spoiled")
        stage.release.set()
        other = await held

    assert ending.outcome is outcome
    assert told in message_of(ending)
    assert "secret" not in message_of(ending)
    assert other.outcome is CallOutcome.RESULT


@pytest.mark.parametrize("size", [2 * 1024**2, 12 * 1024**2])
async def test_a_large_result_comes_whole_as_json_and_as_a_stream(size: int) -> None:
    large = {"content": [{"type": "text", "text": "x" * size}]}

    async def streamed(message: dict[str, Any], send: Send) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": large})
        await answer(send, 200, "text/event-stream", f"event: message\ndata: {body}\n\n".encode())

    spoilings = {"tool:spoiled": answering_result(large), "tool:echo": streamed}
    async with serving(Spoiled(Stage().app(), spoilings)) as server, opened(http_config(server.url)) as upstreams:
        for tool in ("spoiled", "echo"):
            ending = await drive(upstreams, tool)
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
        serving(Spoiled(Stage().app(), {"tool:spoiled": answering_result(result)})) as server,
        opened(http_config(server.url)) as upstreams,
    ):
        ending = await drive(upstreams, "spoiled")

    assert ending.result is not None
    assert json.loads(ending.result) == result


# -- hanging ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_hung_upstream_can_be_given_up_and_does_not_hold_back_other_calls(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not answer the cancellation either, which the SDK sends in line with the calls that follow."""
    monkeypatch.setattr(transport, "COURTESY_SECONDS", 0.1)
    hanging = asyncio.Event()

    async def hang(message: dict[str, Any], send: Send) -> None:
        hanging.set()
        await asyncio.Event().wait()

    wrap = legacy_only if era == "legacy" else _same
    spoiled = Spoiled(wrap(Stage().app()), {"tool:spoiled": hang, "notifications/cancelled": hang})
    async with serving(spoiled) as server, opened(http_config(server.url)) as upstreams:
        call = asyncio.create_task(drive(upstreams, "spoiled"))
        async with asyncio.timeout(WAIT_SECONDS):
            await hanging.wait()
        call.cancel()
        await asyncio.wait({call})
        after = await drive(upstreams, "echo")

    assert call.cancelled()
    assert after.outcome is CallOutcome.RESULT


async def test_an_old_session_that_has_left_many_requests_open_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "ABANDONED_MAX", 2)
    sessions: set[bytes] = set()
    stage = Stage()
    app = legacy_only(stage.app())

    async def watching(scope: Any, receive: Any, send: Any) -> None:
        sessions.update(value for name, value in scope.get("headers", []) if name == b"mcp-session-id")
        await app(scope, receive, send)

    async with serving(watching) as server, opened(http_config(server.url)) as upstreams:
        calls = {asyncio.create_task(drive(upstreams, "hold")) for _ in range(2)}
        await stage.until_inside(2)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert (await drive(upstreams, "echo")).outcome is CallOutcome.RESULT

    assert len(sessions) == 2


async def test_a_redirect_within_the_origin_is_followed_with_the_whole_message() -> None:
    app = Stage().app()

    async def moved(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/old":
            await send({"type": "http.response.start", "status": 307, "headers": [(b"location", b"/mcp")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    async with serving(moved) as server, opened(http_config(server.url.replace("/mcp", "/old"))) as upstreams:
        ending = await drive(upstreams, "echo", {"n": 1})

    assert ending.outcome is CallOutcome.RESULT


def _same(app: Any) -> Any:
    return app
