"""Agents as real processes, for tests of calls that outlive the process that requested them.

async with requesting_agent(spec) as agent:     the process requests a call, sends its handle, and stays
    agent.kill()                                SIGKILL
said = await run_joining_agent(spec, agent.handle, timeout_seconds=5)     another process joins
"""

import asyncio
import multiprocessing
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from ringback.client.durable import (
    CallHandle,
    DurableCaller,
    MemoryRequestState,
    RedisRequestState,
    RequestStateManager,
    SQLiteRequestState,
)
from ringback.client.models import Progress
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import FORK_SERVER


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What every agent of a test knows."""

    target: str
    state: str
    """`memory`, a Redis URL, or the path of a SQLite file."""
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    upstream: str | None = None
    correlation_id: str = "c1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReport:
    result: Any = None
    progress: tuple[Progress, ...] = ()
    error: str | None = None


@dataclass(slots=True)
class RequestingAgent:
    process: ForkServerProcess
    handle: CallHandle

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.join, WAIT_SECONDS)
        assert self.process.exitcode == -9


@asynccontextmanager
async def requesting_agent(spec: AgentSpec) -> AsyncGenerator[RequestingAgent]:
    process, reader = await _start_process(_request, spec)
    try:
        handle = CallHandle.model_validate_json(await _receive(reader))
        yield RequestingAgent(process, handle)
    finally:
        process.kill()
        await asyncio.to_thread(process.join, WAIT_SECONDS)
        reader.close()


async def run_joining_agent(spec: AgentSpec, handle: CallHandle | None, *, timeout_seconds: float | None) -> JoinReport:
    """Join in a process of its own, again and again until there is progress or a result; each time for twice as long.

    Without a handle, the agent finds the call by its correlation id.
    """
    text = None if handle is None else handle.model_dump_json()
    process, reader = await _start_process(_join, spec, text, timeout_seconds)
    try:
        report: JoinReport = await _receive(reader)
        await asyncio.to_thread(process.join, WAIT_SECONDS)
        return report
    finally:
        process.kill()
        reader.close()


def make_state(place: str) -> RequestStateManager:
    if place == "memory":
        return MemoryRequestState()
    return RedisRequestState(place) if place.startswith(("redis://", "unix://")) else SQLiteRequestState(place)


async def _start_process(run: Any, *arguments: Any) -> tuple[ForkServerProcess, Connection]:
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = FORK_SERVER.Process(target=run, args=(*arguments, writer), daemon=True)
    await asyncio.to_thread(process.start)
    writer.close()
    return process, reader


async def _receive(reader: Connection) -> Any:
    assert await asyncio.to_thread(reader.poll, WAIT_SECONDS), "the agent says nothing"
    received = await asyncio.to_thread(reader.recv)
    if isinstance(received, BaseException):
        raise received
    return received


def _request(spec: AgentSpec, writer: Connection) -> None:
    asyncio.run(_request_and_stay(spec, writer))


async def _request_and_stay(spec: AgentSpec, writer: Connection) -> None:
    caller = DurableCaller(spec.target, state=make_state(spec.state))
    handle = await caller.request_call_tool(
        spec.tool,
        spec.arguments,
        upstream=spec.upstream,
        correlation_id=spec.correlation_id,
        start_timeout_seconds=WAIT_SECONDS,
    )
    writer.send(handle.model_dump_json())
    await asyncio.Event().wait()


def _join(spec: AgentSpec, handle: str | None, timeout_seconds: float | None, writer: Connection) -> None:
    writer.send(asyncio.run(_join_call(spec, handle, timeout_seconds)))


async def _join_call(spec: AgentSpec, handle: str | None, timeout_seconds: float | None) -> JoinReport:
    progress: list[Progress] = []
    async with DurableCaller(spec.target, state=make_state(spec.state)) as caller:
        try:
            found = await _find_handle(caller, spec, handle)
            while True:
                result = await caller.join_call_tool(
                    found, timeout_seconds=timeout_seconds, on_progress=progress.append
                )
                if result is not None or progress:
                    break
                if timeout_seconds is not None:
                    timeout_seconds *= 2  # on a busy machine the first time may end before the connection is open
        except Exception as error:  # noqa: BLE001 - the test looks at its text
            return JoinReport(progress=tuple(progress), error=f"{type(error).__name__}: {error}")
    return JoinReport(result=result, progress=tuple(progress))


async def _find_handle(caller: DurableCaller, spec: AgentSpec, handle: str | None) -> CallHandle:
    if handle is not None:
        return CallHandle.model_validate_json(handle)
    (found,) = await caller.list_calls(correlation_id=spec.correlation_id)
    return found.handle
