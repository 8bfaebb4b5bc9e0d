"""Waiting for a task's result: until it has ended, until newer requests want the place, or until the service stops."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError

from ringback.domain.call import Call
from ringback.mcp_server.change_publisher import CallChanges
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.legacy_task_elicitation import RESULT_WAITERS_MAX, LegacyTaskElicitation, TaskResultWaiters
from ringback.mcp_server.request_context import RequestContext
from ringback.services.lifecycle import Lifecycle
from tests.support.builders import make_call


@dataclass(slots=True)
class FakeTaskSession:
    """The little that waiting asks of an exchange."""

    session_id: str = "session-1"


@dataclass(slots=True)
class FakeTaskService:
    lifecycle: Lifecycle = field(default_factory=Lifecycle)


class SilentStream:
    """A call of which there is no news until the test has some."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def next(self) -> Call | None:
        await self.ended.wait()
        return None


def waiting_requests(service: FakeTaskService, calls: SilentStream) -> LegacyTaskElicitation:
    return LegacyTaskElicitation(
        cast("Gateway", service), cast("RequestContext", FakeTaskSession()), cast("CallChanges", calls)
    )


async def test_the_end_of_the_task_ends_the_waiting() -> None:
    calls = SilentStream()
    calls.ended.set()
    await waiting_requests(FakeTaskService(), calls).run(asyncio.Event())
    assert calls.ended.is_set()


async def test_a_stopping_service_ends_every_wait() -> None:
    service, calls = FakeTaskService(), SilentStream()
    service.lifecycle.begin_shutdown()
    await waiting_requests(service, calls).run(asyncio.Event())
    assert not calls.ended.is_set()


async def test_a_displaced_request_gets_the_reason() -> None:
    given_up = asyncio.Event()
    given_up.set()
    with pytest.raises(MCPError, match="Newer requests"):
        await waiting_requests(FakeTaskService(), SilentStream()).run(given_up)


async def test_only_the_oldest_of_its_own_session_and_task_gives_way() -> None:
    waiters, call, other = TaskResultWaiters(), make_call(), make_call()

    def enter(session: str, about: Call) -> Any:
        return waiters.register_waiter(cast("RequestContext", FakeTaskSession(session)), about)

    with enter("session-2", call) as elsewhere, enter("session-1", other) as another:
        contexts = [enter("session-1", call) for _ in range(RESULT_WAITERS_MAX + 1)]
        waiting = [context.__enter__() for context in contexts]
        assert [event.is_set() for event in waiting] == [True, *[False] * RESULT_WAITERS_MAX]
        assert not elsewhere.is_set()
        assert not another.is_set()
        for context in contexts:
            context.__exit__(None, None, None)
