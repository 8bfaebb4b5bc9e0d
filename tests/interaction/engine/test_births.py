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
from tests.support.builders import a_call, a_delivery, a_trusted_webhook, a_webhook
from tests.support.engine import DONE, WAIT_SECONDS, Engine, dispatching, until
from tests.support.examples import ALICE
from tests.support.stores import UnsteadyStore
from tests.support.switchboard import Switchboard

AGENT = "agent.example"


async def end_together(engine: Engine, count: int) -> None:
    """Calls that end in one commit."""
    calls = [a_call() for _ in range(count)]
    await engine.queue(*calls)
    await asyncio.gather(
        *(
            engine.store.write(lambda tx, call=call: engine.recorder.finish_call(tx, call, DONE, lease_token=None))
            for call in calls
        )
    )


async def all_delivered(engine: Engine, count: int) -> None:
    async def delivered() -> bool:
        states = [delivery.state for delivery in await engine.deliveries()]
        return states == [DeliveryState.DELIVERED] * count

    await until(delivered)


async def in_state(engine: Engine, state: DeliveryState) -> list[Delivery]:
    return [delivery for delivery in await engine.deliveries() if delivery.state is state]


async def test_what_happens_while_a_dispatcher_runs_is_born_leased_and_sent_at_once(engine: Engine) -> None:
    board = Switchboard()
    await engine.register(a_trusted_webhook())
    board.hangs(AGENT)
    async with dispatching(engine.dispatcher(board, poll_seconds=3600.0)):
        await engine.finish(a_call())
        await board.until_posts(1)

        (delivery,) = await engine.deliveries()
        assert (delivery.state, delivery.attempts) == (DeliveryState.LEASED, 1)
        assert delivery.lease_token
        assert board.posts[0].content == delivery.body
        board.lets_go(AGENT)
        await all_delivered(engine, 1)


async def test_without_a_dispatcher_everything_is_born_pending(engine: Engine) -> None:
    await engine.register(a_trusted_webhook())
    async with dispatching(engine.dispatcher(Switchboard())):
        pass

    await engine.finish(a_call())

    assert [delivery.state for delivery in await engine.deliveries()] == [DeliveryState.PENDING]


@pytest.mark.requirement("R35")
async def test_an_event_that_was_not_committed_is_not_sent_and_takes_nobodys_slot(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    board = Switchboard()
    await engine.register(a_trusted_webhook())
    async with dispatching(engine.dispatcher(board, per_receiver_max=1)):
        for _ in range(3):
            call = a_call()
            await engine.queue(call)

            async def fail_late(tx: Transaction, call: Call = call) -> None:
                await engine.recorder.finish_call(tx, call, DONE, lease_token=None)
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await unsteady.write(fail_late)
        assert board.posts == []

        await engine.finish(a_call())
        await all_delivered(engine, 1)


@pytest.mark.requirement("R27")
async def test_what_finds_no_slot_waits_its_turn(engine: Engine) -> None:
    board = Switchboard()
    await engine.register(a_trusted_webhook())
    board.hangs(AGENT)
    async with dispatching(engine.dispatcher(board, per_receiver_max=3)):
        await end_together(engine, 10)
        await board.until_posts(3)

        assert len(await in_state(engine, DeliveryState.LEASED)) == 3
        board.lets_go(AGENT)
        await all_delivered(engine, 10)

    assert board.in_flight_max[AGENT] == 3
    assert len(board.posts) == 10


async def test_nothing_new_overtakes_what_already_stands_in_line(engine: Engine) -> None:
    """A receiver that is slower than its events would otherwise get the newest first and the oldest never."""
    board, webhook = Switchboard(), a_trusted_webhook()
    await engine.register(webhook)
    now = engine.clock.now()
    old = [
        a_delivery(webhook_id=webhook.id, seq=seq, due_at=now, give_up_at=now + timedelta(days=4)) for seq in (1, 2, 3)
    ]
    await engine.deliver(*old)
    board.hangs(AGENT)
    async with dispatching(engine.dispatcher(board, per_receiver_max=1)):
        await board.until_posts(1)
        await engine.finish(a_call())
        assert len(await in_state(engine, DeliveryState.LEASED)) == 1

        board.lets_go(AGENT)
        await all_delivered(engine, 4)

    assert [post.content for post in board.posts[:3]] == [delivery.body for delivery in old]


@pytest.mark.parametrize("over", [{"ordered": True}, {"rate_per_second": 100.0}])
async def test_what_is_paced_or_ordered_is_never_born_leased(engine: Engine, over: dict[str, Any]) -> None:
    await engine.register(a_trusted_webhook(**over))
    board = Switchboard()
    async with dispatching(engine.dispatcher(board)):
        call = a_call()
        await engine.queue(call)

        async def finish_and_look(tx: Transaction) -> DeliveryState:
            await engine.recorder.finish_call(tx, call, DONE, lease_token=None)
            (delivery,) = await tx.deliveries.list_page(ALICE, DeliveryFilter(), position=None, limit=10)
            return delivery.state

        assert await engine.store.write(finish_and_look) is DeliveryState.PENDING
        await all_delivered(engine, 1)


async def test_what_is_held_is_not_born_leased(engine: Engine) -> None:
    await engine.register(a_webhook(state=WebhookState.PENDING_VERIFICATION))
    board = Switchboard()
    async with dispatching(engine.dispatcher(board)):
        await engine.finish(a_call())

    assert [delivery.state for delivery in await engine.deliveries()] == [DeliveryState.HELD]
    assert board.posts == []


@pytest.mark.requirement("R35")
async def test_what_was_born_leased_to_a_process_that_died_is_sent_by_the_next(engine: Engine) -> None:
    board = Switchboard()
    await engine.register(a_trusted_webhook())
    board.hangs(AGENT)
    dispatcher = engine.dispatcher(board)
    dying = asyncio.create_task(dispatcher.run(asyncio.Event()))
    await asyncio.sleep(0)
    await engine.finish(a_call())
    await board.until_posts(1)
    dying.cancel()
    await asyncio.wait([dying], timeout=WAIT_SECONDS)
    assert len(await in_state(engine, DeliveryState.LEASED)) == 1

    await engine.recover()
    board.lets_go(AGENT)
    async with dispatching(engine.dispatcher(board)):
        await all_delivered(engine, 1)

    assert len({post.headers["webhook-id"] for post in board.posts}) == 1


async def test_a_dispatcher_that_is_started_again_has_all_its_slots(engine: Engine) -> None:
    """The supervisor runs the same one again after a bug."""
    board = Switchboard()
    await engine.register(a_trusted_webhook())
    board.hangs(AGENT)
    dispatcher = engine.dispatcher(board, per_receiver_max=2, in_flight_max=2)
    first = asyncio.create_task(dispatcher.run(asyncio.Event()))
    await asyncio.sleep(0)
    await end_together(engine, 2)
    await board.until_posts(2)
    first.cancel()
    await asyncio.wait([first], timeout=WAIT_SECONDS)
    await engine.recover()

    board.lets_go(AGENT)
    async with dispatching(dispatcher):
        await all_delivered(engine, 2)
