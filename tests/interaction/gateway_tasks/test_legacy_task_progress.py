"""The progress of a legacy task: it only increases, and none follows the end (MCP 2025-11-25, Progress)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.runner import throttled_writer
from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcMessages, LegacyClientSession, legacy_session
from tests.support.task_upstream import text_result
from tests.support.upstreams import ControlledUpstream, OverriddenResponses, Send, make_http_config, serving

PROGRESS: Final = "notifications/progress"
STATUS: Final = "notifications/tasks/status"

pytestmark = pytest.mark.requirement("R30")


class ReportingTool:
    """The tool `spoiled`: its test decides what it reports, and when it ends."""

    def __init__(self) -> None:
        self._reports: asyncio.Queue[tuple[float, str] | None] = asyncio.Queue()

    def report(self, progress: float, message: str) -> None:
        self._reports.put_nowait((progress, message))

    def end(self) -> None:
        self._reports.put_nowait(None)

    async def respond(self, request: Json, send: Send) -> None:
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        token = request["params"]["_meta"]["progressToken"]
        while (report := await self._reports.get()) is not None:
            params = {"progressToken": token, "progress": report[0], "message": report[1]}
            await _send_event(send, {"jsonrpc": "2.0", "method": PROGRESS, "params": params})
        await _send_event(send, {"jsonrpc": "2.0", "id": request["id"], "result": text_result("done")})
        await send({"type": "http.response.body", "body": b""})


async def _send_event(send: Send, message: Json) -> None:
    body = b"data: " + json.dumps(message).encode() + b"\n\n"
    await send({"type": "http.response.body", "body": body, "more_body": True})


@asynccontextmanager
async def open_session_with_tool(folder: Path) -> AsyncGenerator[tuple[LegacyClientSession, ReportingTool]]:
    tool = ReportingTool()
    app = OverriddenResponses(ControlledUpstream().app(), {"tool:spoiled": tool.respond})
    async with (
        serving(app) as upstream,
        running_application(folder, make_http_config(upstream.url, name="far"), auth="off") as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        legacy_session(http, f"{url}/mcp/far") as session,
    ):
        yield session, tool


async def read_progress_until_status(stream: JsonRpcMessages, **wanted: Any) -> list[Json]:
    """The progress notifications before the status notification with these members."""
    reported: list[Json] = []
    while True:
        message = await stream.read_message()
        if message["method"] == PROGRESS:
            reported.append(message["params"])
        elif message["method"] == STATUS and wanted.items() <= message["params"].items():
            return reported


@pytest.mark.must("P01")
@pytest.mark.must("P02")
async def test_progress_that_does_not_increase_is_a_status_message_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttled_writer, "PROGRESS_INTERVAL_SECONDS", 0.0)
    async with open_session_with_tool(tmp_path) as (session, tool), session.open_event_stream() as stream:
        token = {"progressToken": "mine"}
        await session.request("tools/call", {"name": "spoiled", "arguments": {}, "task": {}, "_meta": token})
        reported: list[tuple[float, str]] = []
        for progress, message in ((2, "copying"), (2, "checking"), (1, "copying again"), (3, "done")):
            tool.report(progress, message)
            for params in await read_progress_until_status(stream, statusMessage=message):
                assert params["progressToken"] == "mine"
                reported.append((params["progress"], params["message"]))
        tool.end()
        await read_progress_until_status(stream, status="completed")
    assert reported == [(2, "copying"), (3, "done")]


@pytest.mark.must("P03")
async def test_progress_that_is_stored_with_the_end_is_not_sent_after_it(
    harness: TasksHarness, session: LegacyClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttled_writer, "PROGRESS_INTERVAL_SECONDS", WAIT_SECONDS)
    async with session.open_event_stream() as stream:
        _, task = await harness.start_task_in_session(session, _meta={"progressToken": "mine"})
        task.set_state(status="working", statusMessage="1 of 2")
        await stream.read_message(PROGRESS)
        task.set_state(status="working", statusMessage="2 of 2")
        task.complete_task("done")
        assert await read_progress_until_status(stream, status="completed") == []
