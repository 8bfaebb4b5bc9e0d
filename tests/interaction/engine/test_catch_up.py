"""Webhooks that hear what the log already holds: in bounded steps, in the order of the log, once, whatever happens between."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.catch_up import STEP_EVENTS_MAX, CatchUp
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import OPEN_STATES, Delivery
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import EventName
from ringback.domain.ids import EventId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier import catch_up as catching_up
from ringback.notifier import fan_out
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.storage.sqlite import database
from tests.support.builders import make_call, make_event, make_verified_webhook, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import RESULT, Engine
from tests.support.examples import ALICE, BOB
from tests.support.stores import FailingStore, open_sqlite_store
from tests.support.vm_steps import counting_vm_steps

FEW: Final = 3
"""Events in a step, where a test is to see many steps."""
SHORT_LOG, LONG_LOG = 1_000, 20_000


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "STEP_EVENTS_MAX", FEW)


async def append(engine: Engine, count: int, **over: Any) -> None:
    """So many events of calls that have expired since."""

    async def work(tx: Transaction) -> None:
        principal = over.get("principal", ALICE)
        first = await tx.events.reserve_seqs(principal, count)
        await tx.events.insert([make_event(**{"seq": first + number} | over) for number in range(count)])

    await engine.store.write(work)


async def start_catch_up(engine: Engine, webhook: Webhook, *, after_seq: int = 0) -> None:
    """Register it, as the service does."""

    async def register(tx: Transaction) -> None:
        await tx.event_log.get_head(webhook.principal, lock=True)
        await tx.webhooks.insert(webhook)
        await engine.recorder.catch_ups.begin_catch_up(tx, webhook, after_seq=after_seq)

    await engine.store.write(register)


async def finish_catching_up(engine: Engine) -> int:
    """How many steps it took."""
    worker, steps = engine.make_catch_up_worker(), 0
    while await worker.run_once():
        steps += 1
    return steps


async def read_seq(engine: Engine, webhook: Webhook) -> CatchUp | None:
    return await engine.store.read(lambda tx: tx.catch_ups.get(webhook.id))


async def list_sent_seqs(engine: Engine, webhook: Webhook) -> list[Delivery]:
    """In the order of the log."""
    where = DeliveryFilter(webhook_id=webhook.id)
    found = await engine.store.read(
        lambda tx: tx.deliveries.list_page(webhook.principal, where, position=None, limit=5000)
    )
    return sorted(found, key=lambda delivery: delivery.seq or 0)


async def list_received_seqs(engine: Engine, webhook: Webhook) -> list[int]:
    return [delivery.seq or 0 for delivery in await list_sent_seqs(engine, webhook)]


def parse_cursor(delivery: Delivery) -> int:
    return decode_log_position(orjson.loads(delivery.body)["cursor"]).seq


# -- what is heard ---------------------------------------------------------------------------------------------------------


async def test_a_new_webhook_gets_the_events_after_its_cursor_only(still: Engine) -> None:
    for _ in range(5):
        await still.finish_call(make_call())
    webhook = make_webhook()

    await start_catch_up(still, webhook, after_seq=2)
    await still.finish_call(make_call())

    assert await read_seq(still, webhook) is None
    assert await list_received_seqs(still, webhook) == [3, 4, 5, 6]


@pytest.mark.requirement("R16")
async def test_a_webhook_for_one_call_gets_that_calls_events_only(still: Engine) -> None:
    await still.finish_call(make_call())
    call = await still.finish_call(make_call())
    await still.finish_call(make_call())
    webhook = make_webhook(call_id=call.id, include_result=True)

    await start_catch_up(still, webhook)

    (delivery,) = await list_sent_seqs(still, webhook)
    assert delivery.call_id == call.id
    assert orjson.loads(delivery.body)["data"]["result"] == orjson.loads(RESULT)


@pytest.mark.parametrize("filters", [{}, {"client_session_id": "another"}])
async def test_a_webhook_that_catches_up_gets_a_call_that_names_it_once(
    still: Engine, short_steps: None, filters: dict[str, str]
) -> None:
    for _ in range(2 * FEW):
        await still.finish_call(make_call())
    webhook, call = make_webhook(**filters), make_call()
    await start_catch_up(still, webhook)
    assert await read_seq(still, webhook) is not None

    await still.store.write(lambda tx: tx.call_webhooks.add(call.id, webhook.id))
    await still.finish_call(call)
    await finish_catching_up(still)

    received = await list_sent_seqs(still, webhook)
    assert [each.call_id for each in received].count(call.id) == 1
    assert len(received) == (1 if filters else 2 * FEW + 1)


async def test_the_event_of_an_expired_call_is_sent_without_a_resume_token(
    still: Engine, fake_clock: FakeClock
) -> None:
    call = await still.finish_call(make_call())
    fake_clock.advance(8 * 86400)
    await still.make_janitor().run_once()
    webhook = make_webhook(call_id=call.id)

    await start_catch_up(still, webhook)

    (delivery,) = await list_sent_seqs(still, webhook)
    assert "resume_token" not in orjson.loads(delivery.body)["data"]


async def test_a_long_log_is_sent_in_steps_to_its_end(still: Engine) -> None:
    await append(still, 2 * STEP_EVENTS_MAX + 1, upstream="git")
    await append(still, STEP_EVENTS_MAX, upstream="time")
    webhook = make_webhook(upstream="git")

    await start_catch_up(still, webhook)

    assert len(await list_received_seqs(still, webhook)) == STEP_EVENTS_MAX
    assert await finish_catching_up(still) == 3
    assert await list_received_seqs(still, webhook) == list(range(1, 2 * STEP_EVENTS_MAX + 2))
    assert await read_seq(still, webhook) is None


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_of_one_call_hears_a_long_life_of_it_step_by_step(still: Engine) -> None:
    call = make_call()
    await append(still, 7, call_id=call.id, name=EventName.CALL_PROGRESS)
    await append(still, 7)
    webhook = make_webhook(call_id=call.id, events=frozenset({EventName.CALL_PROGRESS}))

    await start_catch_up(still, webhook)

    assert await list_received_seqs(still, webhook) == [1, 2, 3]
    await finish_catching_up(still)
    assert await list_received_seqs(still, webhook) == [1, 2, 3, 4, 5, 6, 7]


# -- in bounds -------------------------------------------------------------------------------------------------------------


async def count_registration_steps(folder: Path, events: int, monkeypatch: pytest.MonkeyPatch) -> Sequence[int]:
    """What the registration does in SQLite, and what the step after it does."""
    clock, connections, connect = FakeClock(), list[sqlite3.Connection](), database.connect

    def connect_and_keep(path: Path, *, lock_wait_seconds: float) -> sqlite3.Connection:
        connections.append(connect(path, lock_wait_seconds=lock_wait_seconds))
        return connections[-1]

    monkeypatch.setattr(database, "connect", connect_and_keep)
    async with open_sqlite_store(folder, clock) as store:
        engine, webhook = Engine(store, clock), make_webhook()
        await append(engine, events)
        with counting_vm_steps(connections[-1]) as registering:
            await start_catch_up(engine, webhook)
        with counting_vm_steps(connections[-1]) as going_on:
            assert await engine.make_catch_up_worker().run_once()
        assert len(await list_received_seqs(engine, webhook)) == 2 * STEP_EVENTS_MAX
    return registering.count, going_on.count


async def test_neither_a_registration_nor_a_step_grows_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()

    short = await count_registration_steps(tmp_path / "short", SHORT_LOG, monkeypatch)
    long = await count_registration_steps(tmp_path / "long", LONG_LOG, monkeypatch)

    assert all(of_long <= 1.05 * of_short for of_long, of_short in zip(long, short, strict=True))


async def test_a_step_without_matching_events_is_bounded_too(still: Engine) -> None:
    await append(still, 3 * STEP_EVENTS_MAX)
    webhook = make_webhook(tool="other")

    await start_catch_up(still, webhook)

    place = await read_seq(still, webhook)
    assert place is not None
    assert place.seq == STEP_EVENTS_MAX


async def test_a_step_ends_when_its_bodies_weigh_enough(still: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "STEP_BODY_BYTES_MAX", 1)
    calls = [await still.finish_call(make_call()) for _ in range(3)]
    webhook = make_webhook(include_result=True)

    await start_catch_up(still, webhook)

    assert await list_received_seqs(still, webhook) == [1]
    assert await finish_catching_up(still) == 2
    assert [delivery.call_id for delivery in await list_sent_seqs(still, webhook)] == [call.id for call in calls]


@pytest.mark.usefixtures("short_steps")
async def test_what_is_more_than_may_be_held_is_given_up_and_told_of_as_a_gap(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "CATCH_UP_DELIVERIES_MAX", 4)
    await append(still, 9)
    webhook = make_webhook()

    await start_catch_up(still, webhook)
    await finish_catching_up(still)
    await still.finish_call(make_call())

    assert await list_received_seqs(still, webhook) == [1, 2, 3, 4, 10]
    assert (await still.read_webhook(webhook.id)).missed_from == 5


@pytest.mark.usefixtures("short_steps")
async def test_as_much_as_may_be_held_leaves_no_gap(still: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "CATCH_UP_DELIVERIES_MAX", 4)
    await append(still, 4)
    webhook = make_webhook()

    await start_catch_up(still, webhook)
    await finish_catching_up(still)

    assert await list_received_seqs(still, webhook) == [1, 2, 3, 4]
    assert (await still.read_webhook(webhook.id)).missed_from is None


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_that_waits_for_its_proof_holds_what_it_catches_up_with_in_bounds(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.domain.webhook_health.HELD_DELIVERIES_MAX", 4)
    await append(still, 6)
    webhook = make_webhook(state=WebhookState.PENDING_VERIFICATION)

    await start_catch_up(still, webhook)
    await finish_catching_up(still)

    assert [(each.seq, str(each.state)) for each in await list_sent_seqs(still, webhook)] == [
        (seq, "held") for seq in (1, 2, 3, 4)
    ]
    assert (await still.read_webhook(webhook.id)).missed_from == 5


@pytest.mark.usefixtures("short_steps")
async def test_what_retention_removed_before_its_turn_is_told_of_as_a_gap(still: Engine) -> None:
    await append(still, 9)
    webhook = make_webhook()
    await start_catch_up(still, webhook)

    await still.store.write(lambda tx: tx.events.remove(cutoff=tx.now() + timedelta(days=1), limit=6))
    await finish_catching_up(still)

    assert await list_received_seqs(still, webhook) == [1, 2, 3, 7, 8, 9]
    assert (await still.read_webhook(webhook.id)).missed_from == 4


async def test_events_removed_by_retention_before_registration_become_a_gap(still: Engine) -> None:
    await append(still, 9)
    await still.store.write(lambda tx: tx.events.remove(cutoff=tx.now() + timedelta(days=1), limit=6))
    webhook, later = make_webhook(), make_webhook()

    await start_catch_up(still, webhook, after_seq=2)
    await start_catch_up(still, later, after_seq=6)

    assert await list_received_seqs(still, webhook) == [7, 8, 9]
    assert (await still.read_webhook(webhook.id)).missed_from == 3
    assert await list_received_seqs(still, later) == [7, 8, 9]
    assert (await still.read_webhook(later.id)).missed_from is None


@pytest.mark.usefixtures("short_steps")
async def test_principals_catch_up_in_turns(still: Engine) -> None:
    long, short = make_webhook(), make_webhook(principal=BOB)
    await append(still, 30)
    await append(still, 7, principal=BOB)
    for webhook in (long, short):
        await start_catch_up(still, webhook)
    worker = still.make_catch_up_worker()

    for _ in range(4):
        await worker.run_once()

    assert await read_seq(still, long) is not None
    assert await list_received_seqs(still, short) == [1, 2, 3, 4, 5, 6, 7]


# -- in order, once, and truthfully ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_steps")
async def test_nothing_that_happens_meanwhile_overtakes_what_is_older(still: Engine) -> None:
    await append(still, 5)
    webhook = make_webhook()
    await start_catch_up(still, webhook)

    await still.finish_call(make_call())
    assert await list_received_seqs(still, webhook) == [1, 2, 3]
    await finish_catching_up(still)
    await still.finish_call(make_call())

    assert await list_received_seqs(still, webhook) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.requirement("R27")
@pytest.mark.usefixtures("short_steps")
@given(
    past=st.integers(0, 12),
    after=st.integers(0, 12),
    moves=st.lists(st.sampled_from(["step", "step", "end a call", "dispatch", "crash", "refuse"]), max_size=20),
    answers=st.lists(st.sampled_from([204, 204, 500, 410]), max_size=12),
)
async def test_every_event_is_delivered_once_in_the_order_of_the_log_whatever_comes_between(
    still: Engine,
    still_unsteady: FailingStore,
    fake_clock: FakeClock,
    past: int,
    after: int,
    moves: list[str],
    answers: list[int],
) -> None:
    principal = Principal(f"alice-{still.ids.new_event_id()}")  # each example has a log of its own
    receiver = ScriptedReceiverWithResponses(list(answers))
    dispatcher, worker = still.make_dispatcher(receiver), still.make_catch_up_worker()
    await append(still, past, principal=principal, client_session_id="s")
    webhook = make_verified_webhook(principal=principal, ordered=True)
    await start_catch_up(still, webhook, after_seq=min(after, past))

    last, known = past, await list_received_seqs(still, webhook)
    for move in moves:
        match move:
            case "step":
                await worker.run_once()
            case "end a call":
                await still.finish_call(make_call(principal=principal, client_session_id="s"))
                last += 1
            case "dispatch":
                await dispatcher.run_once()
                fake_clock.advance(1)
            case "refuse":  # the disk is full
                still_unsteady.refusals = 1
                with suppress(StoreUnavailable):
                    await worker.run_once()
                still_unsteady.refusals = 0
            case _:  # all that is in memory is gone
                worker = still.make_catch_up_worker()
        await check_cursors(still, webhook)
        before, known = known, await list_received_seqs(still, webhook)
        assert known[: len(before)] == before
    await finish_catching_up(still)
    for _ in range(3):
        while await dispatcher.run_once():
            pass
        fake_clock.advance(700)

    assert await list_received_seqs(still, webhook) == list(range(min(after, past) + 1, last + 1))
    place_of_event = {delivery.event_id: delivery.seq or 0 for delivery in await list_sent_seqs(still, webhook)}
    places = [place_of_event[event_id] for event_id in receiver.seen]
    assert places == sorted(places)
    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))


class ScriptedReceiverWithResponses:
    """Answers as scripted, then with 204; knows the order in which events were first seen."""

    def __init__(self, script: list[int]) -> None:
        self._script = script
        self.seen: list[EventId] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        event_id = orjson.loads(request.content).get("eventId")
        if event_id is not None and event_id not in self.seen:
            self.seen.append(event_id)
        return httpx.Response(self._script.pop(0) if self._script else 204)


async def check_cursors(engine: Engine, webhook: Webhook) -> None:
    """Nothing at or before a cursor is born later than the body that names it; what is open now was open or later then."""
    deliveries = await list_sent_seqs(engine, webhook)
    for place, delivery in enumerate(deliveries):
        cursor = parse_cursor(delivery)
        assert cursor < (delivery.seq or 0)
        assert all((later.seq or 0) > cursor for later in deliveries[place:])
        assert all((each.seq or 0) > cursor for each in deliveries[:place] if each.state in OPEN_STATES)


@pytest.mark.usefixtures("short_steps")
async def test_a_test_sent_meanwhile_does_not_call_safe_what_is_still_to_come(still: Engine) -> None:
    await append(still, 9)
    webhook = make_webhook(tool="other")  # so that nothing is open, either
    await start_catch_up(still, webhook)

    sent = await still.store.write(lambda tx: RequestedDeliveries(ids=still.ids).insert_test(tx, webhook))

    assert parse_cursor(sent) == FEW


# -- an early end ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_that_is_disabled_meanwhile_hears_no_more_of_the_past(still: Engine) -> None:
    await append(still, 9)
    webhook = make_webhook()
    await start_catch_up(still, webhook)

    for state in (WebhookState.DISABLED, WebhookState.ACTIVE):
        await still.store.write(
            lambda tx, state=state: tx.webhooks.update(replace(webhook, state=state), WebhookPart.STATE)
        )
    assert await finish_catching_up(still) == 0
    await still.finish_call(make_call())

    assert await list_received_seqs(still, webhook) == [1, 2, 3, 10]


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_that_is_removed_between_look_and_step_is_let_alone(still: Engine) -> None:
    await append(still, 9)
    webhook = make_webhook()
    await start_catch_up(still, webhook)
    place = await read_seq(still, webhook)
    assert place is not None

    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))
    await still.store.write(lambda tx: still.recorder.catch_ups.continue_catch_up(tx, place))

    assert await list_received_seqs(still, webhook) == [1, 2, 3]
    assert await finish_catching_up(still) == 0
