"""Changes of a call are reported until it has ended, or is gone."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from ringback.domain.call import Call
from ringback.domain.errors import CallExpired, Forbidden, NotFound, RingbackError, Unavailable
from ringback.domain.principal import Caller
from ringback.domain.signals import Waiter
from ringback.mcp_server.change_publisher import CallChanges
from ringback.mcp_server.gateway import Gateway
from tests.support.builders import make_call


@dataclass(slots=True)
class FakeCalls:
    """Each read has the next of these outcomes."""

    outcomes: list[Call | RingbackError]

    async def get_call(self, _caller: Caller, _call_id: str) -> Call:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, RingbackError):
            raise outcome
        return outcome


@dataclass(slots=True)
class FakeService:
    calls: FakeCalls


@dataclass(slots=True)
class CountingWaiter:
    waits: list[float | None] = field(default_factory=list[float | None])

    async def wait(self, timeout_seconds: float | None = None) -> None:
        self.waits.append(timeout_seconds)


def follow(waiter: CountingWaiter, *outcomes: Call | RingbackError) -> CallChanges:
    service = FakeService(FakeCalls(list(outcomes)))
    return CallChanges(cast("Gateway", service), cast("Caller", None), make_call().id, cast("Waiter", waiter))


@pytest.mark.parametrize("gone", [NotFound("no"), CallExpired("no", call_id="call_1"), Forbidden("no")])
async def test_a_call_that_is_gone_has_no_more_changes_and_no_subscriber_waits_for_one(gone: RingbackError) -> None:
    waiter = CountingWaiter()
    changes = follow(waiter, make_call(), gone)
    assert await changes.next_change() is not None
    assert await changes.next_change() is None
    assert waiter.waits == []


async def test_a_store_that_is_away_is_read_again_at_the_next_hint() -> None:
    waiter, call = CountingWaiter(), make_call()
    assert await follow(waiter, Unavailable("away"), call).next_change() is call
    assert len(waiter.waits) == 1
