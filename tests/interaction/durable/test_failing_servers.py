"""Servers that fail, lie or are away: every direct call ends, and says truthfully how."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.middleware.gzip import GZipMiddleware

from ringback.client.durable import CallFailed, CallNotStarted, DurableCaller, SQLiteRequestState
from ringback.client.durable.journal import CallJournal
from scripts.ports import free_port
from tests.support.durable_calls import calling, request_call
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.task_upstream import TaskUpstream, text_result
from tests.support.upstreams import (
    App,
    ControlledUpstream,
    OverriddenResponses,
    Receive,
    Scope,
    Send,
    make_legacy_app,
    respond_with,
    send_response,
    send_result,
    serving,
)
from tests.unit.client.durable.test_failing_states import BrieflyBrokenState


async def test_a_task_that_the_server_no_longer_knows_ends_as_unknown(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work")
        upstream.tasks.clear()
        with pytest.raises(CallFailed, match="may have done its work") as failed:
            await make_caller().join_call_tool(handle)

    assert failed.value.outcome == "unknown"


async def test_a_call_whose_connection_breaks_before_its_task_is_known_ends_as_unknown(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    upstream.tools_may_respond.clear()
    async with calling(upstream.app(), tmp_path) as (server, make_caller):
        requesting = asyncio.create_task(request_call(make_caller(), "work"))
        await upstream.wait_until(lambda: bool(upstream.side_effects))
        server.drop_connections()
        handle = await requesting
        with pytest.raises(CallFailed) as failed:
            await make_caller().join_call_tool(handle)

    assert failed.value.outcome == "unknown"
    assert upstream.side_effects == ["work"]


async def test_an_error_of_the_server_is_the_outcome_of_the_call(tmp_path: Path) -> None:
    async with calling(ControlledUpstream().app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "refuse")
        with pytest.raises(CallFailed, match="not today") as failed:
            await caller.join_call_tool(handle)

    assert (failed.value.outcome, failed.value.error and failed.value.error["code"]) == ("upstream_error", -32042)


async def test_an_error_of_the_tool_is_a_result(tmp_path: Path) -> None:
    async with calling(ControlledUpstream().app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        result = await caller.join_call_tool(await request_call(caller, "fail"))

    assert result is not None
    assert result["isError"] is True


async def test_a_server_that_is_not_there_starts_nothing_and_leaves_no_state() -> None:
    async with DurableCaller(f"http://127.0.0.1:{free_port()}/mcp") as caller:
        with pytest.raises(CallNotStarted, match="The tool was not called"):
            await request_call(caller, "work", start_timeout_seconds=WAIT_SECONDS)
        assert await caller.list_calls() == []


async def test_a_server_that_is_restarted_is_tried_again_until_it_answers(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    app = upstream.app()
    async with calling(app, tmp_path) as (server, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "work")
        joining = asyncio.create_task(caller.join_call_tool(handle))
        await upstream.wait_until(lambda: upstream.count_requests("tasks/get") > 0)
        await server.kill_server()
        upstream.tasks["task-1"].complete_task("done")
        async with serving(upstream.app(), port=server.port):
            assert await joining == text_result("done")


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    "message", [{"id": "another", "result": {"content": []}}, {"method": "notifications/progress"}]
)
async def test_a_response_to_another_request_ends_the_call(tmp_path: Path, era: str, message: dict[str, Any]) -> None:
    lie = respond_with(200, "application/json", json.dumps({"jsonrpc": "2.0", **message}).encode())
    app = ControlledUpstream().app(stateless_http=era == "legacy")
    app = OverriddenResponses(app if era == "modern" else make_legacy_app(app), {"tool:echo": lie})
    async with calling(app, tmp_path) as (_, make_caller):
        caller = make_caller()
        with pytest.raises(CallFailed, match="the response to another request") as failed:
            await caller.join_call_tool(await request_call(caller, "echo"))

    assert failed.value.outcome == "upstream_error"


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    ("status", "content_type", "outcome"),
    [
        (502, "text/html", "unknown"),
        (504, "application/json", "unknown"),
        (500, "text/html", "upstream_error"),
        (404, "text/plain", "upstream_error"),
        (200, "text/html", "upstream_error"),
    ],
)
async def test_a_page_of_a_proxy_is_no_error_of_the_server(
    tmp_path: Path, era: str, status: int, content_type: str, outcome: str
) -> None:
    """As at a Ringback: only a JSON-RPC error is the server's, and behind a bad gateway the tool may have run."""
    page = respond_with(status, content_type, b'{"error": {"message": "<html>Bad Gateway</html>"}}')
    app = ControlledUpstream().app(stateless_http=era == "legacy")
    app = OverriddenResponses(app if era == "modern" else make_legacy_app(app), {"tool:echo": page})
    async with calling(app, tmp_path) as (_, make_caller):
        caller = make_caller()
        with pytest.raises(CallFailed, match=f"HTTP {status} and {content_type}, which is no MCP response") as failed:
            await caller.join_call_tool(await request_call(caller, "echo"))

    assert failed.value.outcome == outcome
    assert ("may have run" in str(failed.value)) == (outcome == "unknown")


async def test_a_call_that_is_refused_because_of_too_many_requests_has_not_run(tmp_path: Path) -> None:
    refusal = respond_with(429, "text/html", b"<html>Slow down</html>")
    app = OverriddenResponses(ControlledUpstream().app(), {"tool:echo": refusal})
    async with calling(app, tmp_path) as (_, make_caller):
        caller = make_caller()
        with pytest.raises(CallFailed, match="too many requests") as failed:
            await caller.join_call_tool(await request_call(caller, "echo"))

    assert failed.value.outcome == "rejected"


@pytest.mark.parametrize("method", ["tasks/get", "server/discover"])
@pytest.mark.parametrize(("status", "text"), [(404, b"404 page not found"), (502, b"<html>Bad Gateway</html>")])
async def test_a_task_outlives_a_proxy_that_does_not_find_its_server_for_a_moment(
    tmp_path: Path, method: str, status: int, text: bytes
) -> None:
    """Taken for the server's own word, the page would say that the task is unknown, or that only legacy is spoken."""
    upstream, overrides = TaskUpstream(), dict[str, Any]()

    async def answer_once(_: dict[str, Any], send: Send) -> None:
        del overrides[method]
        await send_response(send, status, "text/html", text)

    async with calling(OverriddenResponses(upstream.app(), overrides), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work")
        overrides[method] = answer_once
        upstream.tasks["task-1"].complete_task("done")
        result = await make_caller().join_call_tool(handle)

    assert (result, overrides) == (text_result("done"), {})


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
async def test_a_stream_with_the_response_to_another_request_ends_the_call(tmp_path: Path, line_end: str) -> None:
    response = json.dumps({"jsonrpc": "2.0", "id": "another", "result": {"content": []}})
    lie = respond_with(200, "text/event-stream", f": hello{line_end * 2}data: {response}{line_end * 2}".encode())
    app = OverriddenResponses(ControlledUpstream().app(), {"tool:echo": lie})
    async with calling(app, tmp_path) as (_, make_caller):
        caller = make_caller()
        with pytest.raises(CallFailed, match="the response to another request") as failed:
            await caller.join_call_tool(await request_call(caller, "echo"))

    assert failed.value.outcome == "upstream_error"


async def test_a_handshake_that_is_answered_with_another_id_starts_nothing(tmp_path: Path) -> None:
    lie = respond_with(200, "application/json", b'{"jsonrpc": "2.0", "id": "another", "result": {}}')
    app = OverriddenResponses(ControlledUpstream().app(), {"initialize": lie, "server/discover": lie})
    async with calling(app, tmp_path) as (_, make_caller):
        with pytest.raises(CallNotStarted, match="The tool was not called"):
            await request_call(make_caller(), "echo")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_proxy_that_compresses_responses_does_not_break_a_call(tmp_path: Path, era: str) -> None:
    app = ControlledUpstream().app(json_response=True)
    app = GZipMiddleware(app if era == "modern" else make_legacy_app(app), minimum_size=1)
    async with calling(app, tmp_path) as (_, make_caller):
        caller = make_caller()
        result = await caller.join_call_tool(await request_call(caller, "echo", {"text": "hello"}))

    assert result is not None
    assert result["content"] == [{"type": "text", "text": '{"text": "hello"}'}]


async def test_a_list_of_tools_that_goes_round_in_circles_is_read_once(tmp_path: Path) -> None:
    cursors: list[str | None] = []

    async def circle(message: dict[str, Any], send: Send) -> None:
        cursors.append(message["params"].get("cursor"))
        page: dict[str, Any] = {
            "tools": [],
            "nextCursor": "",
            "ttlMs": 0,
            "cacheScope": "private",
            "resultType": "complete",
        }
        await send_result(message, page, send)

    app = OverriddenResponses(ControlledUpstream().app(), {"tools/list": circle})
    async with calling(app, tmp_path) as (_, make_caller):
        caller = make_caller()
        await caller.join_call_tool(await request_call(caller, "echo"))

    assert cursors == [None, ""]


@pytest.mark.parametrize(("tool", "kind"), [("work", "task"), ("long", "legacy_task"), ("confirm", "mrtr")])
async def test_what_finds_a_call_again_is_not_lost_with_one_failed_write_of_the_state(
    tmp_path: Path, tool: str, kind: str
) -> None:
    """The server runs the tool by then, and only this process knows where."""
    upstream, state = LegacyUpstream() if kind == "legacy_task" else TaskUpstream(), BrieflyBrokenState(f'"{kind}"')
    async with (
        calling(upstream.app(), tmp_path) as (server, _),
        DurableCaller(server.url, state=state) as caller,
    ):
        handle = await request_call(caller, tool, accepts_input=True)

    assert (handle.kind, handle.rejoinable, state.has_failed) == (kind, True, True)


class RestartingProxy:
    """Says 404 to requests that read a stream, while it restarts."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.is_restarting = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_restarting and scope["method"] == "GET":
            await send_response(send, 404, "text/plain", b"No such route.")
        else:
            await self._app(scope, receive, send)


async def test_a_join_that_is_too_short_for_the_response_sees_that_the_session_is_known_again(tmp_path: Path) -> None:
    """Else a second moment of 404, hours later, would end the call at once."""
    upstream = LegacyUpstream()
    proxy = RestartingProxy(upstream.app())
    journal = CallJournal(SQLiteRequestState(tmp_path / "calls.db"))

    async def read_gone_since(call_id: str) -> float | None:
        record = await journal.read(call_id)
        assert record is not None
        assert record.completion is None
        return record.session_gone_since

    async with calling(proxy, tmp_path) as (_, make_caller):
        requesting = make_caller()
        handle = await request_call(requesting, "work")
        await requesting.aclose()
        joining = make_caller()
        proxy.is_restarting = True
        for is_restarting in (True, False):
            proxy.is_restarting = is_restarting
            for seconds in (0.5, 1.0, 2.0):  # a busy machine needs longer until the stream is open
                assert await joining.join_call_tool(handle, timeout_seconds=seconds) is None
                if (await read_gone_since(handle.id) is not None) == is_restarting:
                    break

            assert (await read_gone_since(handle.id) is not None) == is_restarting
