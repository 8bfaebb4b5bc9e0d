"""Waiting for a task's result: until it has ended, until newer requests want the place, or until the service stops."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError

from ringback.domain.call import Call
from ringback.mcp_server.exchange import RequestContext
from ringback.mcp_server.following import CallChanges
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.legacy_questions import RESULT_WAITERS_MAX, LegacyTaskElicitation, TaskResultWaiters
from ringback.services.lifecycle import Lifecycle
from tests.support.builders import a_call


@dataclass(slots=True)
class Session:
    """The little that waiting asks of an exchange."""

    session_id: str = "session-1"


@dataclass(slots=True)
class Service:
    lifecycle: Lifecycle = field(default_factory=Lifecycle)


class Quiet:
    """A call of which there is no news until the test has some."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def next(self) -> Call | None:
        await self.ended.wait()
        return None


def asking(service: Service, calls: Quiet) -> LegacyTaskElicitation:
    return LegacyTaskElicitation(cast("Gateway", service), cast("Exchange", Session()), cast("Following", calls))


async def test_the_end_of_the_task_ends_the_waiting() -> None:
    calls = Quiet()
    calls.ended.set()
    await asking(Service(), calls).run(asyncio.Event())
    assert calls.ended.is_set()


async def test_a_service_that_stops_keeps_nobody_waiting() -> None:
    service, calls = Service(), Quiet()
    service.lifecycle.begin_shutdown()
    await asking(service, calls).run(asyncio.Event())
    assert not calls.ended.is_set()


async def test_who_has_to_give_way_is_told_so() -> None:
    given_up = asyncio.Event()
    given_up.set()
    with pytest.raises(MCPError, match="Newer requests"):
        await asking(Service(), Quiet()).run(given_up)


async def test_only_the_oldest_of_its_own_session_and_task_gives_way() -> None:
    waiters, call, other = TaskResultWaiters(), a_call(), a_call()

    def enter(session: str, about: Call) -> Any:
        return waiters.register_waiter(cast("Exchange", Session(session)), about)

    with enter("session-2", call) as elsewhere, enter("session-1", other) as another:
        contexts = [enter("session-1", call) for _ in range(RESULT_WAITERS_MAX + 1)]
        waiting = [context.__enter__() for context in contexts]
        assert [event.is_set() for event in waiting] == [True, *[False] * RESULT_WAITERS_MAX]
        assert not elsewhere.is_set()
        assert not another.is_set()
        for context in contexts:
            context.__exit__(None, None, None)
