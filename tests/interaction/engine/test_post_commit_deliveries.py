"""Deliveries that are born leased go from the commit of their event straight to their receiver, and are lost by nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.call import Call
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ports import Transaction
from ringback.domain.webhook import WebhookState
from tests.support.builders import make_call, make_delivery, make_verified_webhook, make_webhook
from tests.support.engine import WAIT_SECONDS, Engine, running_dispatcher, wait_until
from tests.support.examples import ALICE
from tests.support.receivers_by_host import ReceiversByHost
from tests.support.stored_work import COMPLETED_RESULT
from tests.support.stores import FailingStore

AGENT = "agent.example"


async def finish_together(engine: Engine, count: int) -> None:
    """Calls that end in one commit."""
    calls = [make_call() for _ in range(count)]
    await engine.insert_calls(*calls)
    await asyncio.gather(
        *(
            engine.store.write(
                lambda tx, call=call: engine.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None)
            )
            for call in calls
        )
    )


async def wait_until_all_delivered(engine: Engine, count: int) -> None:
    async def delivered() -> bool:
        states = [delivery.state for delivery in await engine.read_deliveries()]
        return states == [DeliveryState.DELIVERED] * count

    await wait_until(delivered)


async def list_in_state(engine: Engine, state: DeliveryState) -> list[Delivery]:
    return [delivery for delivery in await engine.read_deliveries() if delivery.state is state]


async def test_deliveries_created_while_a_dispatcher_runs_are_leased_at_commit_and_sent_at_once(engine: Engine) -> None:
    board = ReceiversByHost()
    await engine.insert_webhooks(make_verified_webhook())
    board.hold_responses(AGENT)
    async with running_dispatcher(engine.make_dispatcher(board, poll_seconds=3600.0)):
        await engine.finish_call(make_call())
        await board.wait_for_posts(1)

        (delivery,) = await engine.read_deliveries()
        assert (delivery.state, delivery.attempts) == (DeliveryState.LEASED, 1)
        assert delivery.lease_token
        assert board.posts[0].content == delivery.body
        board.release_responses(AGENT)
        await wait_until_all_delivered(engine, 1)


async def test_without_a_dispatcher_deliveries_are_created_pending(engine: Engine) -> None:
    await engine.insert_webhooks(make_verified_webhook())
    async with running_dispatcher(engine.make_dispatcher(ReceiversByHost())):
        pass

    await engine.finish_call(make_call())

    assert [delivery.state for delivery in await engine.read_deliveries()] == [DeliveryState.PENDING]


@pytest.mark.requirement("R35")
async def test_an_event_that_is_rolled_back_is_not_sent_and_holds_no_permit(
    engine: Engine, unsteady: FailingStore
) -> None:
    board = ReceiversByHost()
    await engine.insert_webhooks(make_verified_webhook())
    async with running_dispatcher(engine.make_dispatcher(board, per_receiver_max=1)):
        for _ in range(3):
            call = make_call()
            await engine.insert_calls(call)

            async def fail_late(tx: Transaction, call: Call = call) -> None:
                await engine.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None)
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await unsteady.write(fail_late)
        assert board.posts == []

        await engine.finish_call(make_call())
        await wait_until_all_delivered(engine, 1)


@pytest.mark.requirement("R27")
async def test_a_delivery_without_a_permit_waits_its_turn(engine: Engine) -> None:
    board = ReceiversByHost()
    await engine.insert_webhooks(make_verified_webhook())
    board.hold_responses(AGENT)
    async with running_dispatcher(engine.make_dispatcher(board, per_receiver_max=3)):
        await finish_together(engine, 10)
        await board.wait_for_posts(3)

        assert len(await list_in_state(engine, DeliveryState.LEASED)) == 3
        board.release_responses(AGENT)
        await wait_until_all_delivered(engine, 10)

    assert board.in_flight_max[AGENT] == 3
    assert len(board.posts) == 10


async def test_nothing_new_overtakes_what_already_stands_in_line(engine: Engine) -> None:
    """A receiver that is slower than its events would otherwise get the newest first and the oldest never."""
    board, webhook = ReceiversByHost(), make_verified_webhook()
    await engine.insert_webhooks(webhook)
    now = engine.clock.now()
    old = [
        make_delivery(webhook_id=webhook.id, seq=seq, due_at=now, give_up_at=now + timedelta(days=4))
        for seq in (1, 2, 3)
    ]
    await engine.insert_deliveries(*old)
    board.hold_responses(AGENT)
    async with running_dispatcher(engine.make_dispatcher(board, per_receiver_max=1)):
        await board.wait_for_posts(1)
        await engine.finish_call(make_call())
        assert len(await list_in_state(engine, DeliveryState.LEASED)) == 1

        board.release_responses(AGENT)
        await wait_until_all_delivered(engine, 4)

    assert [post.content for post in board.posts[:3]] == [delivery.body for delivery in old]


@pytest.mark.parametrize("over", [{"ordered": True}, {"rate_per_second": 100.0}])
async def test_rate_limited_and_ordered_deliveries_are_not_leased_at_commit(
    engine: Engine, over: dict[str, Any]
) -> None:
    await engine.insert_webhooks(make_verified_webhook(**over))
    board = ReceiversByHost()
    async with running_dispatcher(engine.make_dispatcher(board)):
        call = make_call()
        await engine.insert_calls(call)

        async def finish_and_look(tx: Transaction) -> DeliveryState:
            await engine.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None)
            (delivery,) = await tx.deliveries.list_page(ALICE, DeliveryFilter(), position=None, limit=10)
            return delivery.state

        assert await engine.store.write(finish_and_look) is DeliveryState.PENDING
        await wait_until_all_delivered(engine, 1)


async def test_held_deliveries_are_not_leased_at_commit(engine: Engine) -> None:
    await engine.insert_webhooks(make_webhook(state=WebhookState.PENDING_VERIFICATION))
    board = ReceiversByHost()
    async with running_dispatcher(engine.make_dispatcher(board)):
        await engine.finish_call(make_call())

    assert [delivery.state for delivery in await engine.read_deliveries()] == [DeliveryState.HELD]
    assert board.posts == []


@pytest.mark.requirement("R35")
async def test_deliveries_leased_at_commit_by_a_dead_process_are_sent_by_the_next(engine: Engine) -> None:
    board = ReceiversByHost()
    await engine.insert_webhooks(make_verified_webhook())
    board.hold_responses(AGENT)
    dispatcher = engine.make_dispatcher(board)
    dying = asyncio.create_task(dispatcher.run(asyncio.Event()))
    await asyncio.sleep(0)
    await engine.finish_call(make_call())
    await board.wait_for_posts(1)
    dying.cancel()
    await asyncio.wait([dying], timeout=WAIT_SECONDS)
    assert len(await list_in_state(engine, DeliveryState.LEASED)) == 1

    await engine.run_recovery()
    board.release_responses(AGENT)
    async with running_dispatcher(engine.make_dispatcher(board)):
        await wait_until_all_delivered(engine, 1)

    assert len({post.headers["webhook-id"] for post in board.posts}) == 1


async def test_a_restarted_dispatcher_has_all_its_permits(engine: Engine) -> None:
    """The supervisor runs the same one again after a bug."""
    board = ReceiversByHost()
    await engine.insert_webhooks(make_verified_webhook())
    board.hold_responses(AGENT)
    dispatcher = engine.make_dispatcher(board, per_receiver_max=2, in_flight_max=2)
    first = asyncio.create_task(dispatcher.run(asyncio.Event()))
    await asyncio.sleep(0)
    await finish_together(engine, 2)
    await board.wait_for_posts(2)
    first.cancel()
    await asyncio.wait([first], timeout=WAIT_SECONDS)
    await engine.run_recovery()

    board.release_responses(AGENT)
    async with running_dispatcher(dispatcher):
        await wait_until_all_delivered(engine, 2)
