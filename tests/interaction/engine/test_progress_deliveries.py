"""Progress callbacks have two attempts within a minute, and none once a newer event exists."""

import httpx
import pytest

from ringback.domain.call import Call, Progress
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState
from ringback.domain.event import EventName
from tests.support.builders import make_call, make_verified_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import ReceiversByHost
from tests.support.stored_work import COMPLETED_RESULT

AGENT = "agent.example"
BOTH = frozenset({EventName.CALL_PROGRESS, EventName.CALL_FINISHED})


@pytest.fixture
async def call(still: Engine) -> Call:
    await still.insert_webhooks(make_verified_webhook(events=BOTH))
    return await still.lease_call(make_call())


async def progress(engine: Engine, call: Call, value: float) -> Delivery:
    """Record progress, as the runner does, and return its delivery."""
    assert await engine.store.write(
        lambda tx: engine.recorder.record_progress(
            tx, call, Progress(progress=value), lease_token=call.lease_token or ""
        )
    )
    return (await engine.read_deliveries())[-1]


async def end(engine: Engine, call: Call) -> None:
    assert await engine.store.write(
        lambda tx: engine.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=call.lease_token)
    )


async def state(engine: Engine, delivery: Delivery) -> DeliveryState:
    return (await engine.read_delivery(delivery)).state


@pytest.mark.requirement("R17")
async def test_progress_is_tried_twice_within_a_minute_and_leaves_no_gap(
    still: Engine, fake_clock: FakeClock, call: Call
) -> None:
    delivery = await progress(still, call, 1)
    board = ReceiversByHost(500)
    dispatcher = still.make_dispatcher(board)
    for _ in range(10):
        await dispatcher.run_once()
        fake_clock.advance(6)

    assert (delivery.kind, (delivery.give_up_at - delivery.created_at).total_seconds()) == (DeliveryKind.PROGRESS, 60)
    given_up = await still.read_delivery(delivery)
    assert (given_up.state, given_up.attempts) == (DeliveryState.DEAD, 2)
    assert (await still.read_webhook(delivery.webhook_id)).missed_from is None


async def test_newer_progress_replaces_unsent_progress(still: Engine, call: Call) -> None:
    older, newer = await progress(still, call, 1), await progress(still, call, 2)

    assert await state(still, older) is DeliveryState.CANCELLED
    board = ReceiversByHost()
    await still.make_dispatcher(board).run_once()
    assert [body["data"]["progress"]["progress"] for body in board.bodies()] == [2]
    assert await state(still, newer) is DeliveryState.DELIVERED


async def test_the_completion_replaces_unsent_progress(still: Engine, call: Call) -> None:
    older = await progress(still, call, 1)
    await end(still, call)
    board = ReceiversByHost()

    await still.make_dispatcher(board).run_once()

    assert await state(still, older) is DeliveryState.CANCELLED
    assert [body["name"] for body in board.bodies()] == ["call.finished"]


async def test_progress_that_failed_is_not_tried_again_once_something_newer_has_happened(
    still: Engine, call: Call
) -> None:
    delivery = await progress(still, call, 1)

    async def fail_meanwhile(request: httpx.Request) -> httpx.Response:
        if b"call.progress" in request.content:
            await end(still, call)
            return httpx.Response(500)
        return httpx.Response(204)

    await still.make_dispatcher(fail_meanwhile).run_once()

    ended = await still.read_delivery(delivery)
    assert (ended.state, ended.attempts) == (DeliveryState.CANCELLED, 1)


async def test_progress_of_one_call_does_not_affect_another_call(still: Engine, call: Call) -> None:
    delivery = await progress(still, call, 1)
    await progress(still, await still.lease_call(make_call()), 1)
    await still.finish_call(make_call())

    assert await state(still, delivery) is DeliveryState.PENDING
