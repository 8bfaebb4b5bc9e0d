"""Ends that come together are written together, and each is still its own: what becomes of one is no matter to the others."""

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from ringback.domain import health
from ringback.domain.call import Call, CallCompletion, IllegalTransition, CallStatus, completion_from_result
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.webhook import WebhookState
from ringback.notifier.ends import CompletionBatcher, PrepareCompletion
from ringback.notifier.record import CompletionRequest
from tests.support.builders import a_call, a_delivery, a_webhook
from tests.support.counting import CountingStore
from tests.support.engine import DONE, Engine
from tests.support.examples import ALICE, BOB
from tests.support.stores import FOREVER, UnsteadyStore


def as_it_is(call: Call, ending: CallCompletion = DONE) -> PrepareCompletion:
    async def prepare(_tx: Transaction) -> CompletionRequest:
        return CompletionRequest(call=call, completion=ending, lease_token=None)

    return prepare


async def not_ours(_tx: Transaction) -> None:
    return None


def ends_of(engine: Engine) -> CompletionBatcher:
    return CompletionBatcher(store=engine.store, recorder=engine.recorder)


async def finish_all(engine: Engine, calls: Sequence[Call]) -> list[Call | None]:
    ends = ends_of(engine)
    return await asyncio.gather(*(ends.finish_call(as_it_is(call)) for call in calls))


async def test_ends_that_come_together_are_one_unit_of_work(still: Engine) -> None:
    calls = [a_call() for _ in range(50)]
    await still.queue(*calls)
    counting = still.store = CountingStore(still.store)

    ended = await finish_all(still, calls)

    assert counting.written == ["Ends._record"]
    assert ended == [await still.call(call) for call in calls]
    assert {call.status for call in ended if call} == {CallStatus.COMPLETED}


@pytest.mark.requirement("R35")
async def test_each_end_has_its_own_place_in_the_log_of_its_principal(still: Engine) -> None:
    alices, bobs = [a_call() for _ in range(3)], [a_call(principal=BOB) for _ in range(2)]
    await still.queue(*alices, *bobs)

    await finish_all(still, [alices[0], bobs[0], alices[1], bobs[1], alices[2]])

    assert [(event.seq, event.call_id) for event in await still.events(ALICE)] == [
        (seq, call.id) for seq, call in enumerate(alices, 1)
    ]
    assert [(event.seq, event.call_id) for event in await still.events(BOB)] == [
        (seq, call.id) for seq, call in enumerate(bobs, 1)
    ]


async def test_who_hears_an_end_is_asked_for_each(still: Engine) -> None:
    one, other = a_call(client_session_id="one"), a_call(client_session_id="other")
    of_one, of_other = a_webhook(client_session_id="one"), a_webhook(call_id=other.id)
    await still.queue(one, other)
    await still.register(of_one, of_other)

    await finish_all(still, [one, other])

    assert {(each.webhook_id, each.call_id) for each in await still.deliveries()} == {
        (of_one.id, one.id),
        (of_other.id, other.id),
    }


async def test_a_cursor_stands_before_the_first_that_is_open_also_among_those_born_together(still: Engine) -> None:
    calls = [a_call() for _ in range(3)]
    await still.queue(*calls)
    await still.register(a_webhook())

    await finish_all(still, calls)

    deliveries = sorted(await still.deliveries(), key=lambda each: each.seq or 0)
    assert [decode_log_position(orjson.loads(each.body)["cursor"]).seq for each in deliveries] == [0, 0, 0]


async def test_what_is_held_is_bounded_also_among_those_born_together(still: Engine) -> None:
    webhook = a_webhook(state=WebhookState.SUSPENDED)
    await still.register(webhook)
    await still.deliver(
        *(a_delivery(webhook_id=webhook.id, state=DeliveryState.HELD) for _ in range(health.HELD_DELIVERIES_MAX - 1))
    )
    calls = [a_call() for _ in range(3)]
    await still.queue(*calls)

    await finish_all(still, calls)

    assert await still.store.read(lambda tx: tx.webhook_deliveries.count_held(webhook.id, limit=20_000)) == health.HELD_DELIVERIES_MAX
    assert (await still.webhook(webhook.id)).missed_from == 2


async def test_an_end_that_is_not_ours_is_left_alone_and_the_others_are_written(still: Engine) -> None:
    call = a_call()
    await still.queue(call)
    ends = ends_of(still)

    lost, ended = await asyncio.gather(ends.finish_call(not_ours), ends.finish_call(as_it_is(call)))

    assert lost is None
    assert ended == await still.call(call)


@pytest.mark.requirement("R35")
async def test_a_bug_with_one_end_is_no_harm_to_the_others(still: Engine) -> None:
    before, broken, after = a_call(), a_call(status=CallStatus.CANCELLED), a_call()
    await still.queue(before, after)
    ends = ends_of(still)

    outcomes = await asyncio.gather(
        *(ends.finish_call(as_it_is(call)) for call in (before, broken, after)), return_exceptions=True
    )

    assert isinstance(outcomes[1], IllegalTransition)
    assert [outcomes[0], outcomes[2]] == [await still.call(before), await still.call(after)]
    assert len(await still.events()) == 2


async def test_whoever_goes_before_its_turn_takes_its_end_along(still: Engine) -> None:
    kept, gone = a_call(), a_call()
    await still.queue(kept, gone)
    ends = ends_of(still)
    writing = asyncio.create_task(ends.finish_call(as_it_is(kept)))
    leaving = asyncio.create_task(ends.finish_call(as_it_is(gone)))
    await asyncio.sleep(0)
    leaving.cancel()

    assert (await writing) == await still.call(kept)
    assert await still.call(gone) == gone


async def test_a_store_that_cannot_be_written_tells_everybody_and_nothing_is_half_done(still: Engine) -> None:
    calls = [a_call() for _ in range(3)]
    await still.queue(*calls)
    unsteady = still.store = UnsteadyStore(still.store)
    unsteady.refusals = FOREVER
    ends = ends_of(still)

    outcomes = await asyncio.gather(*(ends.finish_call(as_it_is(call)) for call in calls), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    unsteady.refusals = 0
    assert [await still.call(call) for call in calls] == calls
    retried = await asyncio.gather(*(ends.finish_call(as_it_is(call)) for call in calls))
    assert None not in retried


async def test_the_same_end_twice_is_written_once(still: Engine) -> None:
    call = a_call()
    await still.queue(call)
    ends = ends_of(still)

    first, second = await asyncio.gather(
        ends.finish_call(as_it_is(call)), ends.finish_call(as_it_is(call, completion_from_result(b"{}", is_error=True)))
    )

    assert first is not None
    assert second is None
    assert len(await still.events()) == 1


async def test_what_was_handed_in_is_written_when_draining_is_over(still: Engine) -> None:
    call = a_call()
    await still.queue(call)
    ends = ends_of(still)
    writing = asyncio.create_task(ends.finish_call(as_it_is(call)))
    await asyncio.sleep(0)

    await ends.drain()

    assert (await still.call(call)).status is CallStatus.COMPLETED
    assert await writing is not None
