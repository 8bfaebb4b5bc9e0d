"""When a service counts as idle."""

from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.bootstrap.idle_stop import IdleWatch
from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.usage import StoreTotals
from tests.support.clock import FakeClock

IDLE_SECONDS = 60.0


class ScriptedStore:
    """Returns these totals one after the other, then none."""

    def __init__(self, *totals: StoreTotals | StoreUnavailable) -> None:
        self._totals: Iterator[StoreTotals | StoreUnavailable] = iter(totals)

    async def read(self, work: Callable[[Any], Awaitable[StoreTotals]]) -> StoreTotals:
        async def count_totals() -> StoreTotals:
            totals = next(self._totals, make_totals())
            if isinstance(totals, StoreUnavailable):
                raise totals
            return totals

        return await work(SimpleNamespace(usage=SimpleNamespace(count_totals=count_totals)))


def make_totals(
    calls: dict[CallStatus, int] | None = None, deliveries: dict[DeliveryState, int] | None = None
) -> StoreTotals:
    return StoreTotals(
        calls=calls or {}, open_deliveries=deliveries or {}, failing_webhooks={}, events=7, subscriptions=0
    )


async def wait_until_idle(store: ScriptedStore, connections: list[int]) -> float:
    """The seconds until the service is idle. `connections` are the counts of the first checks."""
    clock = FakeClock()
    counts = iter(connections)
    watch = IdleWatch(
        cast("Store", store), clock=clock, count_connections=lambda: next(counts, 0), idle_seconds=IDLE_SECONDS
    )
    began = clock.monotonic()
    await watch.wait_until_idle()
    return clock.monotonic() - began


async def test_a_service_without_work_is_idle_after_the_configured_time() -> None:
    ended = make_totals({CallStatus.COMPLETED: 5}, {DeliveryState.DEAD: 1, DeliveryState.HELD: 3})

    assert await wait_until_idle(ScriptedStore(ended), []) == IDLE_SECONDS


@pytest.mark.parametrize(
    "busy",
    [
        make_totals({CallStatus.WORKING: 1}),
        make_totals({CallStatus.INPUT_REQUIRED: 1}),
        make_totals(deliveries={DeliveryState.PENDING: 1}),
        make_totals(deliveries={DeliveryState.LEASED: 1}),
        StoreUnavailable("The disk is full."),
    ],
)
async def test_open_calls_and_deliveries_begin_the_time_again(busy: StoreTotals | StoreUnavailable) -> None:
    assert await wait_until_idle(ScriptedStore(make_totals(), busy), []) == IDLE_SECONDS + 10


async def test_a_connected_client_begins_the_time_again() -> None:
    assert await wait_until_idle(ScriptedStore(), [0, 0, 2]) == IDLE_SECONDS + 15
