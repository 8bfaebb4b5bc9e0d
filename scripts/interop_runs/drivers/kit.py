"""The loop of every Python driver. It runs in the client's environment, so it uses only the standard library.

Commands are JSON lines on standard input; each gets one JSON line on standard output:

    {"do": "open", "url", "headers", "command"}              connects; `command` is for clients that start a command
    {"do": "list"}                                           {"tools": [names]}
    {"do": "call", "tool", "arguments", "meta", "cancel_after"}
                                                             {"text", "blocks", "is_error", "progress"}, or {"given_up": true}
    {"do": "close"}                                          disconnects

A command that raises gets {"raised": "Type: message"}. `text` is what a model reads of the result.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

MESSAGE_LENGTH_MAX = 600
ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # frameworks print to standard output, some while they are imported: drivers import this module first


@dataclass
class Job:
    """How to connect. `command` is empty for clients that connect to the URL."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()


@dataclass
class Answer:
    """What a model sees of a tool's result."""

    text: str
    blocks: Sequence[str] = ("text",)
    """The kinds of content blocks that the framework hands to the model's provider."""
    is_error: bool = False
    progress: int = 0
    """Progress notifications that the client saw."""


class Client(Protocol):
    async def list_tools(self) -> list[str]: ...

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> Answer: ...


OpenClient = Callable[[Job], AbstractAsyncContextManager[Client]]


def run(open_client: OpenClient) -> None:
    """Serve commands until standard input ends."""

    def answer(message: Mapping[str, Any]) -> None:
        ANSWERS.write(json.dumps(message) + "\n")
        ANSWERS.flush()

    asyncio.run(_serve(open_client, answer))
    os._exit(0)  # threads of a framework do not delay the exit


async def _serve(open_client: OpenClient, answer: Callable[[Mapping[str, Any]], None]) -> None:
    session: _Session | None = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        what = command.pop("do")
        try:
            if what == "open":
                session = _Session(open_client, Job(**command))
                answer(await session.perform({}))
            elif session is None:
                answer({"raised": "no session is open"})
            elif what == "close":
                answer(await session.close())
            else:
                answer(await session.perform({"do": what, **command}))
        except BaseException as problem:  # noqa: BLE001 - what the client raises is what its user sees
            answer({"raised": describe(problem)})


class _Session:
    """One connection, opened, used and closed in one task, as the SDK's cancel scopes require."""

    def __init__(self, open_client: OpenClient, job: Job) -> None:
        self._commands: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]] | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(open_client, job))

    async def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._commands.put_nowait((command, answer))
        await asyncio.wait({self._task, answer}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        await self._task
        return {"raised": "the connection has ended"}

    async def close(self) -> dict[str, Any]:
        self._commands.put_nowait(None)
        await self._task
        return {"closed": True}

    async def _run(self, open_client: OpenClient, job: Job) -> None:
        async with open_client(job) as client:
            while (item := await self._commands.get()) is not None:
                command, answer = item
                try:
                    done = await _perform(client, command)
                except Exception as problem:  # noqa: BLE001 - it belongs to this command
                    done = {"raised": describe(problem)}
                if not answer.done():
                    answer.set_result(done)


async def _perform(client: Client, command: dict[str, Any]) -> dict[str, Any]:
    match command.pop("do", "open"):
        case "open":
            return {"opened": True}
        case "list":
            return {"tools": await client.list_tools()}
        case _:
            return await _call(client, **command)


async def _call(
    client: Client,
    tool: str,
    arguments: dict[str, Any],
    meta: dict[str, Any] | None = None,
    cancel_after: float | None = None,
) -> dict[str, Any]:
    progress = 0

    def on_progress() -> None:
        nonlocal progress
        progress += 1

    work = asyncio.ensure_future(client.call(tool, arguments, meta=meta, on_progress=on_progress))
    if cancel_after is not None and not (await asyncio.wait({work}, timeout=cancel_after))[0]:
        work.cancel()
        await asyncio.wait({work})
        return {"given_up": True}
    answer = await work
    answer.progress = max(answer.progress, progress)
    return asdict(answer)


def describe(problem: BaseException) -> str:
    """The types and messages, also those inside a group."""
    inner: Sequence[BaseException] = getattr(problem, "exceptions", ())
    if inner:
        return "; ".join(describe(each) for each in inner)
    return f"{type(problem).__name__}: {problem}"[:MESSAGE_LENGTH_MAX]


async def swallow_progress(*_arguments: Any) -> None:
    """A progress callback that does nothing."""


def counting(on_progress: Callable[[], None]) -> Callable[..., Awaitable[None]]:
    """A progress callback in the SDK's form."""

    async def count(*_arguments: Any, **_named: Any) -> None:
        on_progress()

    return count


def read_mcp_content(content: Sequence[Any]) -> Answer:
    """What a program reads of an MCP result: the texts, and the JSON of other blocks. It decides what a model gets."""
    return Answer(text="\n".join(_as_text(block) for block in content))


def read_provider_content(content: Sequence[Any]) -> Answer:
    """What a framework hands to the model's provider, block by block."""
    return Answer(
        text="\n".join(_as_text(block) for block in content), blocks=[str(_field(block, "type")) for block in content]
    )


def _as_text(block: Any) -> str:
    return str(_field(block, "text")) if _field(block, "type") == "text" else _as_json(block)


def _field(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)


def _as_json(block: Any) -> str:
    return block.model_dump_json() if hasattr(block, "model_dump_json") else json.dumps(block, default=str)
