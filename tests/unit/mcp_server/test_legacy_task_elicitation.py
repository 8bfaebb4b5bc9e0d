"""tasks/result waits until the task ends, a newer request takes the place, or the service stops."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError

from ringback.domain.call import Call
from ringback.mcp_server import legacy_task_elicitation
from ringback.mcp_server.change_publisher import CallChanges
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.legacy_task_elicitation import RESULT_WAITERS_MAX, LegacyTaskElicitation, TaskResultWaiters
from ringback.mcp_server.request_context import RequestContext
from ringback.services.lifecycle import Lifecycle
from tests.support.builders import make_call
from tests.support.limits import WAIT_SECONDS


@dataclass(slots=True)
class FakeTaskSession:
    """The part of a RequestContext that the waiting needs."""

    mcp_session_id: str = "session-1"
    request_closed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class FakeTaskService:
    lifecycle: Lifecycle = field(default_factory=Lifecycle)


class SilentCallChanges:
    """Reports no change of a call until the test sets `ended`."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def next_change(self) -> Call | None:
        await self.ended.wait()
        return None


def create_elicitation(
    service: FakeTaskService, calls: SilentCallChanges, session: FakeTaskSession | None = None
) -> LegacyTaskElicitation:
    context = cast("RequestContext", session or FakeTaskSession())
    return LegacyTaskElicitation(cast("Gateway", service), context, cast("CallChanges", calls))


async def test_the_end_of_a_task_ends_the_wait() -> None:
    calls = SilentCallChanges()
    calls.ended.set()
    await create_elicitation(FakeTaskService(), calls).run(asyncio.Event())
    assert calls.ended.is_set()


async def test_a_stopping_service_ends_every_wait() -> None:
    service, calls = FakeTaskService(), SilentCallChanges()
    service.lifecycle.begin_shutdown()
    await create_elicitation(service, calls).run(asyncio.Event())
    assert not calls.ended.is_set()


async def test_the_wait_of_a_client_that_has_disconnected_ends() -> None:
    """A task may run for weeks, and a session does not cancel the handlers of requests whose connections are gone."""
    session, calls = FakeTaskSession(), SilentCallChanges()
    session.request_closed.set()
    with pytest.raises(MCPError, match="connection"):
        await asyncio.wait_for(create_elicitation(FakeTaskService(), calls, session).run(asyncio.Event()), WAIT_SECONDS)
    assert not calls.ended.is_set()


async def test_a_superseded_request_gets_an_error_with_the_reason() -> None:
    superseded = asyncio.Event()
    superseded.set()
    with pytest.raises(MCPError, match="Newer requests"):
        await create_elicitation(FakeTaskService(), SilentCallChanges()).run(superseded)


async def test_a_new_waiter_supersedes_only_the_oldest_of_its_session_and_task() -> None:
    waiters, call, other = TaskResultWaiters(), make_call(), make_call()

    def register(session: str, awaited: Call) -> Any:
        return waiters.register_waiter(cast("RequestContext", FakeTaskSession(session)), awaited)

    with register("session-2", call) as elsewhere, register("session-1", other) as another:
        contexts = [register("session-1", call) for _ in range(RESULT_WAITERS_MAX + 1)]
        waiting = [context.__enter__() for context in contexts]
        assert [event.is_set() for event in waiting] == [True, *[False] * RESULT_WAITERS_MAX]
        assert not elsewhere.is_set()
        assert not another.is_set()
        for context in contexts:
            context.__exit__(None, None, None)


async def test_a_superseded_waiter_that_leaves_late_does_not_remove_newer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(legacy_task_elicitation, "RESULT_WAITERS_MAX", 1)
    waiters, call = TaskResultWaiters(), make_call()
    oldest, newer, newest, last = [
        waiters.register_waiter(cast("RequestContext", FakeTaskSession()), call) for _ in range(4)
    ]
    oldest.__enter__()
    with newer:
        pass
    superseded = newest.__enter__()
    oldest.__exit__(None, None, None)

    with last:
        assert superseded.is_set()
    newest.__exit__(None, None, None)
