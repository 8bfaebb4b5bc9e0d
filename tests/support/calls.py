"""Calls on an engine, as client and runner see them."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import SystemClock, seconds
from ringback.domain.inputs import InputAnswer
from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller
from ringback.domain.signals import call_cancel_topic
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas
from ringback.upstreams.config import UpstreamConfig
from tests.support.builders import make_call
from tests.support.engine import Engine, wait_until
from tests.support.upstreams import App, HttpServer, make_http_config, open_upstreams, serving


def make_call_to(
    engine: Engine, tool: str, *, upstream: str = "stage", deadline_in: float = 3600.0, **over: Any
) -> Call:
    """A call whose client accepts input, with a deadline by the engine's clock."""
    deadline = engine.clock.now() + seconds(deadline_in)
    return make_call(
        **({"upstream": upstream, "tool": tool, "arguments": {}, "accepts_input": True} | over), deadline_at=deadline
    )


async def insert_call_to(engine: Engine, tool: str, **over: Any) -> Call:
    """The call of `make_call_to`, stored."""
    call = make_call_to(engine, tool, **over)
    await engine.insert_calls(call)
    return call


def make_calls(engine: Engine, count: int, **over: Any) -> list[Call]:
    return [make_call(deadline_at=engine.clock.now().replace(year=2100), **over) for _ in range(count)]


@asynccontextmanager
async def running_runner(engine: Engine, upstream: UpstreamConfig, **runner: Any) -> AsyncGenerator[None]:
    """One run of a process: it connects to this upstream and runs calls until the context ends."""
    async with open_upstreams(upstream) as upstreams, engine.running_runner(upstreams, **runner):
        yield


@asynccontextmanager
async def running_with_app(engine: Engine, app: App, **runner: Any) -> AsyncGenerator[HttpServer]:
    """A server of this app, and a process that runs calls on it."""
    async with serving(app) as server, running_runner(engine, make_http_config(server.url), **runner):
        yield server


async def wait_for_call(engine: Engine, call: Call, reached: Callable[[Call], bool]) -> Call:
    """Poll until the condition holds, and return the call: some changes send no notification."""

    async def is_reached() -> bool:
        found = await engine.read_call(call)
        assert reached(found) or not found.is_final, found.error
        return reached(found)

    await wait_until(is_reached)
    return await engine.read_call(call)


async def wait_for_handle(engine: Engine, call: Call) -> Call:
    """Whether the call's handle is stored."""
    return await wait_for_call(engine, call, lambda found: found.handle is not None)


async def run_until_handle(engine: Engine, upstream: UpstreamConfig, *calls: Call) -> None:
    """One run of a process, which stops once the handles of the calls are stored and hands the calls back."""
    async with running_runner(engine, upstream, drain_seconds=0.01):
        for call in calls:
            await wait_for_handle(engine, call)


async def wait_for_input_request(engine: Engine, call: Call) -> Call:
    return await wait_for_call(engine, call, lambda found: found.status is CallStatus.INPUT_REQUIRED)


async def answer_call(engine: Engine, call: Call, responses: Mapping[str, Any]) -> InputAnswer:
    """Answer as the call's principal, through the service."""
    owner = Caller(principal=call.principal, scopes=DEFAULT_SCOPES)
    return await InputAnswers(
        engine.store, engine.recorder, RequestedSchemas(), SchemaCheckLimiter(clock=SystemClock())
    ).answer_input(owner, call.id, responses)


async def request_cancel(engine: Engine, call: Call) -> None:
    """Request cancellation of a dispatched call, as the service does."""

    async def mark_cancel_requested(tx: Transaction) -> None:
        running = await tx.calls.get(call.id)
        assert running is not None
        if not running.is_final:
            asked = replace(running, cancel_requested=True)
            await tx.calls.update(asked, CallChange.CANCELLING, expected=running.status, lease_token=None)
        tx.notify(call_cancel_topic(call.id))

    await engine.store.write(mark_cancel_requested)


async def notify_execution(engine: Engine, call: Call) -> None:
    """Notify the call's execution of a change."""

    async def notify(tx: Transaction) -> None:
        tx.notify(call_cancel_topic(call.id))

    await engine.store.write(notify)
