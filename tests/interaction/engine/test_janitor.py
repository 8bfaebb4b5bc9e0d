"""The janitor recovers the work of dead processes and removes expired rows in the right order."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus, Handle
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import DeliveryState, RetryDecision, build_delivery_update
from ringback.domain.errors import CallExpired
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC, DELIVERY_DUE_TOPIC
from ringback.janitor.config import GIVE_UP_SECONDS_MAX, Retention
from ringback.janitor.recovery import LEASE_GRACE_SECONDS, OVERDUE_GRACE_SECONDS, SHORTENED_LEASE_SECONDS
from ringback.services.calls.call_reads import get_own_call
from tests.support.builders import make_attempt, make_call, make_delivery, make_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import WAIT_SECONDS, Engine, insert_dispatched_call
from tests.support.examples import ALICE
from tests.support.stored_work import LEASE_SECONDS, OWNER

T = TypeVar("T")
DAY = 86400.0
DEAD_AFTER_SECONDS = LEASE_SECONDS + LEASE_GRACE_SECONDS


async def extend_lease(engine: Engine, call: Call, *, until: datetime) -> None:
    assert await engine.store.write(lambda tx: tx.call_queue.extend_leases(OWNER, [call.id], until=until))


# -- what the dead have left ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
async def test_a_dispatched_call_whose_runner_died_is_unknown_and_is_not_run_again(
    still: Engine, fake_clock: FakeClock
) -> None:
    call = await insert_dispatched_call(still, make_call())
    await still.insert_webhooks(make_webhook())
    fake_clock.advance(DEAD_AFTER_SECONDS)

    await still.make_janitor().run_once()

    ended = await still.read_call(call)
    assert (ended.outcome, ended.runs, ended.lease_token) == (CallOutcome.UNKNOWN, 1, None)
    assert "was not run again" in (ended.error or {})["message"]
    assert len(await still.read_events()) == len(await still.read_deliveries()) == 1


@pytest.mark.requirement("R35")
async def test_a_call_that_was_not_dispatched_is_queued_again(still: Engine, fake_clock: FakeClock) -> None:
    call = make_call()
    await still.lease_call(call)
    fake_clock.advance(DEAD_AFTER_SECONDS)

    with still.store.signals.listen(CALL_QUEUED_TOPIC) as waiter:
        await still.make_janitor().run_once()
        assert await waiter.wait(WAIT_SECONDS)

    assert await still.read_call(call) == replace(call, updated_at=fake_clock.now())
    assert await still.read_events() == []


async def test_a_call_that_was_not_dispatched_ends_if_its_cancellation_was_requested(still: Engine) -> None:
    call = make_call(phase=CallPhase.RUNNING, cancel_requested=True)
    await still.insert_calls(call)

    await still.make_janitor().run_once()

    assert (await still.read_call(call)).outcome is CallOutcome.CANCELLED


async def test_an_expired_lease_has_a_grace_period_before_recovery(still: Engine, fake_clock: FakeClock) -> None:
    call = await insert_dispatched_call(still, make_call())
    fake_clock.advance(DEAD_AFTER_SECONDS - 0.001)

    await still.make_janitor().run_once()

    assert await still.read_call(call) == call


@pytest.mark.requirement("R33")
async def test_a_call_that_waited_beyond_its_deadline_never_reached_the_upstream(
    still: Engine, fake_clock: FakeClock
) -> None:
    call, patient = make_call(), make_call(deadline_at=START + timedelta(hours=1, milliseconds=1))
    await still.insert_calls(call, patient)
    fake_clock.advance(3600)

    await still.make_janitor().run_once()

    ended = await still.read_call(call)
    assert (ended.outcome, ended.dispatched_at) == (CallOutcome.REJECTED, None)
    assert await still.read_call(patient) == patient


async def test_a_scheduled_call_that_no_runner_has_queued_ends_at_its_deadline(
    still: Engine, fake_clock: FakeClock
) -> None:
    """As while every upstream runs as many calls as it may."""
    times = {"not_before": START + timedelta(minutes=1), "deadline_at": START + timedelta(minutes=2)}
    call = make_call(phase=CallPhase.SCHEDULED, **times)
    later = make_call(phase=CallPhase.SCHEDULED, not_before=START + timedelta(hours=1))
    await still.insert_calls(call, later)
    fake_clock.advance(3600)

    await still.make_janitor().run_once()

    assert (await still.read_call(call)).outcome is CallOutcome.REJECTED
    assert await still.read_call(later) == later


@pytest.mark.requirement("R33")
async def test_the_janitor_grants_a_grace_before_it_times_out_a_queued_call_with_a_task(
    still: Engine, fake_clock: FakeClock
) -> None:
    sent = {"dispatched_at": START, "runs": 1}
    task = make_call(handle=Handle(driver="task", data={"task_id": "1"}), **sent)
    between_rounds = make_call(handle=Handle(driver="mrtr", data={"request_state": "s", "round": 1}), **sent)
    await still.insert_calls(task, between_rounds)
    fake_clock.advance(3600)

    await still.make_janitor().run_once()
    assert (await still.read_call(between_rounds)).outcome is CallOutcome.TIMED_OUT
    assert await still.read_call(task) == task

    fake_clock.advance(OVERDUE_GRACE_SECONDS)
    await still.make_janitor().run_once()
    assert (await still.read_call(task)).outcome is CallOutcome.TIMED_OUT


@pytest.mark.requirement("R33")
async def test_calls_that_have_a_grace_delay_the_end_of_no_other_call(still: Engine, fake_clock: FakeClock) -> None:
    """As many as one batch were read first in each round, for a minute."""
    sent = {"dispatched_at": START, "runs": 1, "handle": Handle(driver="task", data={"task_id": "1"})}
    tasks = [make_call(**sent) for _ in range(3)]
    later = {"deadline_at": START + timedelta(hours=1, seconds=1)}
    parked = make_call(phase=CallPhase.PARKED, **later)
    between_rounds = make_call(**later, **(sent | {"handle": Handle(driver="mrtr", data={"request_state": "s"})}))
    unsent = make_call(**later)
    await still.insert_calls(*tasks, parked, between_rounds, unsent)
    fake_clock.advance(3601)

    await still.make_janitor(batch_size=3).run_once()

    assert all([(await still.read_call(call)).is_final for call in (parked, between_rounds, unsent)])
    assert not any([(await still.read_call(call)).is_final for call in tasks])


@pytest.mark.requirement("R27")
async def test_a_delivery_whose_dispatcher_died_is_sent_again(still: Engine, fake_clock: FakeClock) -> None:
    leased = {"state": DeliveryState.LEASED, "lease_token": "lease_1", "attempts": 1}
    lapsed = make_delivery(**leased, lease_until=START)
    held = make_delivery(**leased, lease_until=START + timedelta(seconds=1))
    await still.insert_deliveries(lapsed, held)

    with still.store.signals.listen(DELIVERY_DUE_TOPIC) as waiter:
        await still.make_janitor().run_once()
        assert await waiter.wait(WAIT_SECONDS)

    again = await still.read_delivery(lapsed)
    assert (again.state, again.attempts, again.lease_token) == (DeliveryState.PENDING, 1, None)
    assert await still.read_delivery(held) == held


async def test_leases_of_a_node_that_died_while_the_clock_was_far_ahead_run_out_once_it_is_corrected(
    still: Engine, fake_clock: FakeClock
) -> None:
    """They would last for forty days, and nobody would run the call or send the callback until then."""
    far = START + timedelta(days=40)
    call = await insert_dispatched_call(still, make_call())
    await extend_lease(still, call, until=far)
    delivery = make_delivery(state=DeliveryState.LEASED, lease_token="lease_1", lease_until=far, attempts=1)
    await still.insert_deliveries(delivery)
    janitor = still.make_janitor()

    await janitor.run_once()
    assert (await still.read_call(call)).phase is CallPhase.RUNNING, "its holder may live, and extend it"
    fake_clock.advance(SHORTENED_LEASE_SECONDS + LEASE_GRACE_SECONDS)
    await janitor.run_once()

    assert (await still.read_call(call)).outcome is CallOutcome.UNKNOWN
    assert (await still.read_delivery(delivery)).state is DeliveryState.PENDING


async def test_a_node_that_lives_keeps_what_it_has_leased_while_the_clock_was_far_ahead(
    still: Engine, fake_clock: FakeClock
) -> None:
    call = await insert_dispatched_call(still, make_call())
    await extend_lease(still, call, until=START + timedelta(days=40))
    janitor = still.make_janitor()

    for _ in range(12):
        await janitor.run_once()
        fake_clock.advance(10)
        await extend_lease(still, call, until=fake_clock.now() + timedelta(seconds=LEASE_SECONDS))
    await janitor.run_once()

    kept = await still.read_call(call)
    assert (kept.phase, kept.lease_token) == (CallPhase.RUNNING, call.lease_token)


# -- what is past its day ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
async def test_an_expired_call_is_removed_with_its_result_and_leaves_a_tombstone(
    still: Engine, fake_clock: FakeClock
) -> None:
    call = await still.finish_call(make_call(idempotency_key="once"))
    fake_clock.advance(7 * DAY - 0.001)
    await still.make_janitor().run_once()
    assert await still.read_call(call) == call

    fake_clock.advance(0.001)
    await still.make_janitor().run_once()

    with pytest.raises(CallExpired):
        await still.store.read(lambda tx: get_own_call(tx, ALICE, call.id))
    assert await still.read_result(call) is None
    memory = await still.store.read(lambda tx: tx.tombstones.get(ALICE, call_id=None, key="once"))
    assert memory is not None
    assert (memory.call_id, memory.request_hash) == (call.id, call.request_hash)


async def test_a_running_call_never_expires(still: Engine, fake_clock: FakeClock) -> None:
    call = await insert_dispatched_call(still, make_call(deadline_at=START + timedelta(days=30)))
    await still.store.write(
        lambda tx: tx.call_queue.extend_leases("runner-1", [call.id], until=START + timedelta(days=30))
    )
    fake_clock.advance(29 * DAY)

    await still.make_janitor().run_once()

    assert (await still.read_call(call)).status is CallStatus.WORKING


async def test_results_expire_before_events_and_events_before_tombstones(still: Engine, fake_clock: FakeClock) -> None:
    call = await still.finish_call(make_call(idempotency_key="once"))

    async def there(tx: Transaction) -> tuple[bool, bool, bool]:
        memory = await tx.tombstones.get(ALICE, call_id=None, key="once")
        return (
            await tx.calls.get(call.id) is not None,
            await tx.event_log.get_retention_floor(ALICE) == 0,
            memory is not None,
        )

    seen: list[tuple[bool, bool, bool]] = []
    for days in (7, 8, 23):
        fake_clock.advance(days * DAY + 1)
        await still.make_janitor().run_once()
        seen.append(await still.store.read(there))

    assert seen == [(False, True, True), (False, False, True), (False, False, False)]


async def test_old_deliveries_are_removed_with_their_attempts_and_open_ones_stay(
    still: Engine, fake_clock: FakeClock
) -> None:
    ended = make_delivery(state=DeliveryState.DELIVERED, finished_at=START)
    waiting = make_delivery()
    await still.insert_deliveries(ended, waiting)
    await still.store.write(lambda tx: tx.delivery_queue.insert_attempts([make_attempt(ended)]))
    fake_clock.advance(14 * DAY + 1)

    await still.make_janitor().run_once()

    assert await still.read_deliveries() == [waiting]
    assert await still.read_attempts(ended) == []


async def test_an_expired_webhook_stays_until_it_has_no_open_delivery(still: Engine) -> None:
    webhook = make_webhook(expires_at=START)
    delivery = make_delivery(webhook_id=webhook.id, state=DeliveryState.LEASED, lease_token="lease_1",
                          lease_until=START + timedelta(seconds=30))  # fmt: skip
    await still.insert_webhooks(webhook)
    await still.insert_deliveries(delivery)

    await still.make_janitor().run_once()
    assert await still.read_webhook(webhook.id) == webhook

    delivered = build_delivery_update(delivery, RetryDecision(state=DeliveryState.DELIVERED), category=None, now=START)
    await still.store.write(lambda tx: tx.delivery_queue.apply_updates([delivered]))
    await still.make_janitor().run_once()
    assert await still.store.read(lambda tx: tx.webhooks.get(webhook.id)) is None


@pytest.mark.parametrize(
    "out_of_order",
    [
        {"result_seconds": GIVE_UP_SECONDS_MAX},
        {"result_seconds": 15 * DAY},
        {"event_seconds": 31 * DAY},
        {"tombstone_seconds": 13 * DAY},
    ],
)
def test_retention_periods_out_of_order_are_rejected(out_of_order: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Retention must be in order"):
        Retention(**out_of_order)


def test_equal_retention_periods_are_accepted() -> None:
    kept = GIVE_UP_SECONDS_MAX + 1

    assert Retention(result_seconds=kept, event_seconds=kept, tombstone_seconds=kept)


# -- at the start -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_a_start_voids_earlier_leases_and_recovers_their_work(still: Engine) -> None:
    """One process serves this store, so the holder of every lease in it is dead, however fresh the lease is."""
    lost, waiting = await insert_dispatched_call(still, make_call()), make_call()
    await still.lease_call(waiting)
    sent = make_delivery(
        state=DeliveryState.LEASED, lease_token="lease_1", lease_until=START + timedelta(seconds=30), attempts=1
    )
    await still.insert_deliveries(sent)

    await still.run_recovery(still.make_janitor(batch_size=1, exclusive_owner="the next process"))

    assert (await still.read_call(lost)).outcome is CallOutcome.UNKNOWN
    assert await still.read_call(waiting) == waiting
    again = await still.read_delivery(sent)
    assert (again.state, again.attempts, again.lease_token) == (DeliveryState.PENDING, 1, None)
