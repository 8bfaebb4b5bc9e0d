"""Calls on an MCP server, without a service in between. Needs `pip install "ringback[mcp]"`."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringback.client.durable.direct.server import AnswerInput, McpCommand, McpServer
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRequest
from ringback.client.durable.target import without_secrets

if TYPE_CHECKING:
    import httpx2

    from ringback.client.durable.direct.calls import DirectCalls

_NAME_DIGITS: Final = 12
"""Of the hash that names a command in handles: 48 bits, and no argument can be read from it."""


class _DirectTarget:
    """What servers over HTTP and commands have in common."""

    may_repeat_start = False

    def __init__(self, url: str, server: McpServer | McpCommand, *, advice: str = "") -> None:
        """`advice` ends the messages about what only a Ringback has."""
        if find_spec("mcp") is None:
            raise ImportError(f'Calls on an MCP server need the MCP SDK: pip install "ringback[mcp]".{advice}')
        self.url = url
        self._advice = advice
        self._server = server
        self._calls: DirectCalls | None = None

    def check_request(self, request: CallRequest) -> None:
        if request.upstream is not None:
            raise ValueError(
                f"`upstream` names a server behind a Ringback. This target is an MCP server itself.{self._advice}"
            )
        if request.callback is not None:
            raise ValueError(f"A callback needs a Ringback. This target is an MCP server itself.{self._advice}")
        if request.timeout_seconds is not None and not request.timeout_seconds > 0:
            raise ValueError("`timeout_seconds` must be more than 0: the time of the whole call, in seconds.")

    async def aclose(self) -> None:
        """Nothing stays open between calls."""

    async def run_call(self, call: LocalCall) -> None:
        await self._get_calls().run_call(call)

    async def cancel_call(self, call: LocalCall) -> None:
        await self._get_calls().cancel_call(call)

    async def check_questions(self, call: LocalCall) -> None:
        await self._get_calls().check_questions(call)

    async def answer_call(self, call: LocalCall, responses: Mapping[str, Mapping[str, Any]]) -> None:
        await self._get_calls().answer_call(call, responses)

    def _get_calls(self) -> "DirectCalls":
        if self._calls is None:
            from ringback.client.durable.direct.calls import DirectCalls  # noqa: PLC0415 - it imports the SDK

            self._calls = DirectCalls(self._server)
        return self._calls


class McpTarget(_DirectTarget):
    """An MCP server over streamable HTTP, of either era.

    A call can be rejoined if the server runs it as a task (2026-07-28 or 2025-11-25), or stores the events of its sessions.

    Questions of a 2026-07-28 server end a join as `InputRequired`, if the call `accepts_input`, and any process answers. An
    earlier server asks on the connection of the call, and waits: `answer_input` answers it, in the process that follows the
    call. Without `answer_input` the connection declares no elicitation.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        transport: "httpx2.AsyncBaseTransport | None" = None,
        answer_input: AnswerInput | None = None,
    ) -> None:
        """`headers` go with every request, for example `{"Authorization": "Bearer …"}`. They are not stored.

        `transport` sends the requests, for example one with TLS settings or a proxy of your own. It stays open.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                "McpTarget needs the http(s) URL of an MCP server. For a server that is a command, use "
                'McpCommandTarget("python", ["server.py"]), or put it behind a Ringback: ringback serve --upstream NAME=COMMAND'
            )
        server = McpServer(url=url, headers=dict(headers or {}), transport=transport, answer_input=answer_input)
        shown = without_secrets(url)
        super().__init__(
            shown,
            server,
            advice=f" If {shown} is a Ringback, say so: DurableCaller(RingbackTarget({shown!r}, api_key=…))",
        )


class McpCommandTarget(_DirectTarget):
    """An MCP server that is a command (stdio), of either era. Each call starts the command, which ends with the call.

    So no other process can join a call while it runs, and the handle says so: `rejoinable` is False. Put the server behind a
    Ringback to change that. `keeps_tasks=True` says that the server stores its tasks where a new process of it finds them: then
    they are used, and can be rejoined.
    """

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        keeps_tasks: bool = False,
        answer_input: AnswerInput | None = None,
    ) -> None:
        """`env` is added to a few variables of this process, such as PATH and HOME. `answer_input` is as in `McpTarget`."""
        folder = None if cwd is None else os.fspath(cwd)
        named = hashlib.sha256(json.dumps([command, *args, folder]).encode()).hexdigest()[:_NAME_DIGITS]
        server = McpCommand(
            command=command,
            args=tuple(args),
            env=None if env is None else dict(env),
            cwd=folder,
            keeps_tasks=keeps_tasks,
            answer_input=answer_input,
        )
        super().__init__(f"stdio:{Path(command).name}:{named}", server)
