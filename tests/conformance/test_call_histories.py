"""What the history of a call is read from: the latest events, deliveries and attempts, as every store returns them."""

from ringback.domain.delivery import DeliveryState
from ringback.domain.event import EventName
from ringback.domain.ids import EventId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller
from ringback.services.calls.call_histories import CallHistories
from tests.support.builders import make_attempt, make_call, make_delivery, make_event, make_webhook
from tests.support.examples import ALICE, BOB

CALL, OTHER = make_call(principal=ALICE, client_session_id="s"), make_call(principal=ALICE, client_session_id="s")
READER = Caller(principal=ALICE, scopes=DEFAULT_SCOPES)


async def test_a_history_has_the_latest_events_deliveries_and_attempts_of_its_call(store: Store) -> None:
    webhook = make_webhook(principal=ALICE)
    deliveries = [
        make_delivery(principal=ALICE, webhook_id=webhook.id, call_id=CALL.id, seq=number, state=DeliveryState.PENDING)
        for number in range(1, 53)
    ]
    foreign = make_delivery(principal=ALICE, webhook_id=webhook.id, call_id=OTHER.id, seq=60)
    attempts = [make_attempt(deliveries[-1], number=number) for number in range(1, 23)]
    events = [
        make_event(principal=ALICE, seq=number, call_id=CALL.id, name=EventName.CALL_PROGRESS)
        for number in range(1, 203)
    ]

    async def fill(tx: Transaction) -> None:
        for call in (CALL, OTHER):
            await tx.calls.insert(call)
        await tx.webhooks.insert(webhook)
        await tx.events.reserve_seqs(ALICE, len(events))
        await tx.events.insert(events)
        await tx.deliveries.insert([*deliveries, foreign])
        await tx.delivery_queue.insert_attempts(attempts)

    await store.write(fill)
    histories = CallHistories(store=store)
    history = await histories.read_history(READER, CALL.id)
    marks = await histories.list_marks(READER, "s", position=None, limit=10)

    assert [event.seq for event in history.events] == list(range(3, 203))
    assert [each.delivery.id for each in history.deliveries] == [each.id for each in deliveries[2:]]
    assert [attempt.number for attempt in history.deliveries[-1].attempts] == list(range(3, 23))
    assert not history.deliveries[0].attempts
    assert {each.webhook for each in history.deliveries} == {webhook}
    assert all(not each.delivery.body for each in history.deliveries)
    assert history.is_truncated
    assert [each.call.id for each in marks] == [OTHER.id, CALL.id]
    assert [[delivery.id for delivery in each.deliveries] for each in marks] == [
        [foreign.id],
        [delivery.id for delivery in deliveries[-5:]],
    ]


async def test_the_deliveries_of_an_event_are_those_of_one_principal_or_of_all(store: Store) -> None:
    event_id = EventId("git:order-7")
    own = make_delivery(principal=ALICE, event_id=event_id)
    foreign = make_delivery(principal=BOB, event_id=event_id, webhook_id=make_webhook().id)
    await store.write(lambda tx: tx.deliveries.insert([own, foreign, make_delivery(principal=ALICE)]))

    async def list_of(tx: Transaction) -> list[set[str]]:
        return [
            {delivery.id for delivery in await tx.call_histories.list_of_event(principal, event_id, limit=10)}
            for principal in (ALICE, BOB, None)
        ]

    assert await store.read(list_of) == [{own.id}, {foreign.id}, {own.id, foreign.id}]
