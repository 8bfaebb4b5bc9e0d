"""The HTTP upstreams, as processes: the stages of the tests, whose tools end by themselves and note every start durably."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn

from scripts.chaos_runs.ledger import Ledger
from tests.support import legacy_stage, task_stage
from tests.support.legacy_stage import LegacyStage
from tests.support.task_stage import TaskStage
from tests.support.upstreams import App, Context


class Modern(TaskStage):
    """2026-07-28: `echo` answers, `work` becomes a task, `confirm` asks one question first."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    async def _list(self, names: list[str]) -> types.ListToolsResult:
        return await super()._list([*names, "echo"])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Any:  # noqa: ARG002 - the SDK's
        arguments = params.arguments or {}
        asked = bool(params.request_state)
        self._ledger.note(key=arguments["key"], round=int(asked))
        if params.name == "confirm" and not asked:
            question = types.ElicitRequest.model_validate(task_stage.QUESTION)
            return types.InputRequiredResult(input_requests={"sure": question}, request_state=json.dumps({"round": 1}))
        if params.name == "work":
            return self._task(arguments)
        await asyncio.sleep(arguments["seconds"])
        return types.CallToolResult.model_validate(task_stage.text_result(arguments["key"]))

    def _task(self, arguments: dict[str, Any]) -> dict[str, Any]:
        # Named for its call: a server that has forgotten its tasks must not give another's under an old name.
        task = task_stage.Task(f"task-{arguments['key']}-{id(arguments)}", self)
        self.tasks[task.id] = task
        asyncio.get_running_loop().call_later(arguments["seconds"], _complete, task, arguments["key"])
        return {"resultType": "task", **self._told(task)}


def _complete(task: task_stage.Task, text: str) -> None:
    if task.state["status"] == "working":
        task.complete(text)


class Legacy(LegacyStage):
    """2025-11-25, with sessions and kept events: `work` answers on a stream that can be resumed, `long` is a task."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        self._ledger.note(key=arguments["key"], round=0)
        await context.session.report_progress(1, 2, "begun")
        await asyncio.sleep(arguments["seconds"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=arguments["key"])])

    def _make(self, params: dict[str, Any], session: str | None) -> legacy_stage.Task:
        arguments = params["arguments"]
        self._ledger.note(key=arguments["key"], round=0)
        task = legacy_stage.Task(f"task-{arguments['key']}-{id(params)}", session, ttl=params["task"]["ttl"])
        self.tasks[task.id] = task
        asyncio.get_running_loop().call_later(arguments["seconds"], _end, task)
        return task


def _end(task: legacy_stage.Task) -> None:
    if task.status == "working":
        task.end()


def modern(*, port: int, ledger: Path) -> None:
    serve(Modern(Ledger(ledger)).app(), port)


def legacy(*, port: int, ledger: Path) -> None:
    serve(Legacy(Ledger(ledger)).app(), port)


def serve(app: App, port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(app, log_config=None, access_log=False, ws="none")
        uvicorn.Server(config).run(sockets=[listener])
