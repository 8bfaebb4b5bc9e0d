"""An MCP server whose tools do not end: `python -m scripts.benchmarks.silent_upstream PORT`.

`hold` never responds, `work` is a task that never ends, `echo` responds at once. `GET /polls` returns the number of polls.
"""

import asyncio
import socket
import sys
from typing import Any, Final

import mcp_types as types
import uvicorn
import uvloop

from tests.support.task_upstream import TaskUpstream, UpstreamTask, text_result
from tests.support.upstreams import Context, Receive, Scope, Send, send_response

POLL_MS: Final = 60_000
"""The poll interval of its tasks: a minute, as for a server with thousands of long tasks."""


class SilentUpstream(TaskUpstream):
    async def _list(self, names: list[str]) -> types.ListToolsResult:
        return await super()._list([*names, "echo", "hold"])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Any:  # noqa: ARG002 - the SDK's
        match params.name:
            case "work":
                task = UpstreamTask(f"task-{len(self.tasks) + 1}", self)
                self.tasks[task.id] = task
                return {"resultType": "task", **self._task_json(task)}
            case "hold":
                await asyncio.Event().wait()
            case _:
                pass
        return types.CallToolResult.model_validate(text_result("here"))


def main(port: int) -> None:
    silent = SilentUpstream(poll_ms=POLL_MS)
    inner = silent.app(json_response=True)  # the SDK's server pings event streams

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/polls":
            await send_response(send, 200, "text/plain", b"%d" % silent.count_requests("tasks/get"))
        else:
            await inner(scope, receive, send)

    with socket.create_server(("127.0.0.1", port), backlog=2048) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
        uvloop.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
