"""The HTTP upstreams, as processes: those of the tests, with tools that end by themselves and record every start durably."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn

from scripts.chaos_runs.journal import Journal
from tests.support import legacy_upstream as legacy_stage
from tests.support import task_upstream as task_stage
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import App, Context


class ModernChaosUpstream(TaskUpstream):
    """2026-07-28: `echo` responds at once, `work` becomes a task, `confirm` requests input first."""

    def __init__(self, ledger: Journal) -> None:
        super().__init__()
        self._ledger = ledger

    async def _list(self, names: list[str]) -> types.ListToolsResult:
        return await super()._list([*names, "echo"])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Any:  # noqa: ARG002 - the SDK's
        arguments = params.arguments or {}
        asked = bool(params.request_state)
        self._ledger.append(key=arguments["key"], round=int(asked))
        if params.name == "confirm" and not asked:
            question = types.ElicitRequest.model_validate(task_stage.QUESTION)
            return types.InputRequiredResult(input_requests={"sure": question}, request_state=json.dumps({"round": 1}))
        if params.name == "work":
            return self._task(arguments)
        await asyncio.sleep(arguments["seconds"])
        return types.CallToolResult.model_validate(task_stage.text_result(arguments["key"]))

    def _task(self, arguments: dict[str, Any]) -> dict[str, Any]:
        # The id contains the call's key, so that a restarted server does not reuse an old task's id.
        task = task_stage.UpstreamTask(f"task-{arguments['key']}-{id(arguments)}", self)
        self.tasks[task.id] = task
        asyncio.get_running_loop().call_later(arguments["seconds"], _complete, task, arguments["key"])
        return {"resultType": "task", **self._task_json(task)}


def _complete(task: task_stage.UpstreamTask, text: str) -> None:
    if task.state["status"] == "working":
        task.complete_task(text)


class LegacyChaosUpstream(LegacyUpstream):
    """2025-11-25, with sessions and an event store: `work` responds on a resumable stream, `long` is a task."""

    def __init__(self, ledger: Journal) -> None:
        super().__init__()
        self._ledger = ledger

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        self._ledger.append(key=arguments["key"], round=0)
        await context.session.report_progress(1, 2, "begun")
        await asyncio.sleep(arguments["seconds"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=arguments["key"])])

    def _create_task(self, params: dict[str, Any], session: str | None) -> legacy_stage.LegacyTask:
        arguments = params["arguments"]
        self._ledger.append(key=arguments["key"], round=0)
        task = legacy_stage.LegacyTask(f"task-{arguments['key']}-{id(params)}", session, ttl=params["task"]["ttl"])
        self.tasks[task.id] = task
        asyncio.get_running_loop().call_later(arguments["seconds"], end_task, task)
        return task


def end_task(task: legacy_stage.LegacyTask) -> None:
    if task.status == "working":
        task.end_task()


def modern(*, port: int, ledger: Path) -> None:
    serve(ModernChaosUpstream(Journal(ledger)).app(), port)


def legacy(*, port: int, ledger: Path) -> None:
    serve(LegacyChaosUpstream(Journal(ledger)).app(), port)


def serve(app: App, port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(app, log_config=None, access_log=False, ws="none")
        uvicorn.Server(config).run(sockets=[listener])
