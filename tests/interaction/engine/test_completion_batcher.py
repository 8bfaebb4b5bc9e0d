"""Completions that are submitted together share a transaction, and each one succeeds or fails by itself."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import pytest

from ringback.domain import webhook_health as health
from ringback.domain.call import Call, CallPhase, CallStatus, IllegalTransition
from ringback.domain.call_outcome import CallCompletion, completion_from_result
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.webhook import WebhookState
from ringback.notifier.call_ends import LeasedCompletion
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import START
from tests.support.counting_store import CommitCountingStore
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS
from tests.support.stored_work import COMPLETED_RESULT
from tests.support.stores import FOREVER, FailingStore, StoreWithLockedRows

LEASE = "lease_1"


def make_leased_call(**over: Any) -> Call:
    lease = {
        "phase": CallPhase.RUNNING,
        "lease_owner": "runner-1",
        "lease_token": LEASE,
        "lease_until": START + timedelta(hours=1),
    }
    return make_call(**(lease | over))


def complete(
    call: Call, completion: CallCompletion = COMPLETED_RESULT, *, lease_token: str = LEASE
) -> LeasedCompletion:
    return LeasedCompletion(
        call_id=call.id, principal=call.principal, lease_token=lease_token, completion=completion, progress=None
    )


async def finish_all(engine: Engine, calls: Sequence[Call]) -> list[Call | None]:
    ends = engine.make_completion_batcher()
    return await asyncio.gather(*(ends.finish_call(complete(call)) for call in calls))


async def test_completions_submitted_together_share_one_transaction(still: Engine) -> None:
    calls = [make_leased_call() for _ in range(50)]
    await still.insert_calls(*calls)
    counting = still.store = CommitCountingStore(still.store)

    ended = await finish_all(still, calls)

    assert counting.written == ["CompletionBatcher._record_completions"]
    assert ended == [await still.read_call(call) for call in calls]
    assert {call.status for call in ended if call} == {CallStatus.COMPLETED}


async def test_the_outcome_of_an_attended_call_is_known_before_its_end_is_committed(still: Engine) -> None:
    call, attended = make_leased_call(), still.attended_calls
    await still.insert_calls(call)
    attended.expect_end(call)
    unsteady = still.store = FailingStore(still.store)
    unsteady.refusals = FOREVER

    with pytest.raises(StoreUnavailable):
        await still.make_completion_batcher().finish_call(complete(call))

    assert attended.has_outcome(call.id)
    assert attended.find_end(call.id) is None


@pytest.mark.requirement("R35")
async def test_each_completion_gets_its_own_sequence_number_in_the_log_of_its_principal(still: Engine) -> None:
    alices, bobs = [make_leased_call() for _ in range(3)], [make_leased_call(principal=BOB) for _ in range(2)]
    await still.insert_calls(*alices, *bobs)

    await finish_all(still, [alices[0], bobs[0], alices[1], bobs[1], alices[2]])

    assert [(event.seq, event.call_id) for event in await still.read_events(ALICE)] == [
        (seq, call.id) for seq, call in enumerate(alices, 1)
    ]
    assert [(event.seq, event.call_id) for event in await still.read_events(BOB)] == [
        (seq, call.id) for seq, call in enumerate(bobs, 1)
    ]


async def test_webhooks_are_matched_for_each_completion(still: Engine) -> None:
    one, other = make_leased_call(client_session_id="one"), make_leased_call(client_session_id="other")
    of_one, of_other = make_webhook(client_session_id="one"), make_webhook(call_id=other.id)
    await still.insert_calls(one, other)
    await still.insert_webhooks(of_one, of_other)

    await finish_all(still, [one, other])

    assert {(each.webhook_id, each.call_id) for each in await still.read_deliveries()} == {
        (of_one.id, one.id),
        (of_other.id, other.id),
    }


async def test_a_cursor_stays_before_the_first_open_delivery_also_within_one_batch(still: Engine) -> None:
    calls = [make_leased_call() for _ in range(3)]
    await still.insert_calls(*calls)
    await still.insert_webhooks(make_webhook())

    await finish_all(still, calls)

    deliveries = sorted(await still.read_deliveries(), key=lambda each: each.seq or 0)
    assert [decode_log_position(orjson.loads(each.body)["cursor"]).seq for each in deliveries] == [0, 0, 0]


async def test_the_hold_limit_also_applies_within_one_batch(
    still: Engine, monkeypatch: pytest.MonkeyPatch, *, deep: bool
) -> None:
    if not deep:
        monkeypatch.setattr(health, "HELD_DELIVERIES_MAX", 30)
    webhook = make_webhook(state=WebhookState.SUSPENDED)
    await still.insert_webhooks(webhook)
    await still.insert_deliveries(
        *(make_delivery(webhook_id=webhook.id, state=DeliveryState.HELD) for _ in range(health.HELD_DELIVERIES_MAX - 1))
    )
    calls = [make_leased_call() for _ in range(3)]
    await still.insert_calls(*calls)

    await finish_all(still, calls)

    assert (
        await still.store.read(lambda tx: tx.webhook_deliveries.count_held(webhook.id, limit=20_000))
        == health.HELD_DELIVERIES_MAX
    )
    assert (await still.read_webhook(webhook.id)).missed_from == 2


async def test_a_completion_with_a_lost_lease_is_not_written_and_the_others_are(still: Engine) -> None:
    call = make_leased_call()
    await still.insert_calls(call)
    ends = still.make_completion_batcher()

    lost, ended = await asyncio.gather(
        ends.finish_call(complete(call, lease_token="another token")), ends.finish_call(complete(call))
    )

    assert lost is None
    assert ended == await still.read_call(call)


@pytest.mark.requirement("R35")
async def test_a_bug_with_one_completion_does_not_affect_the_others(still: Engine) -> None:
    before, broken, after = make_leased_call(), make_leased_call(status=CallStatus.CANCELLED), make_leased_call()
    await still.insert_calls(before, broken, after)
    ends = still.make_completion_batcher()

    outcomes = await asyncio.gather(
        *(ends.finish_call(complete(call)) for call in (before, broken, after)), return_exceptions=True
    )

    assert isinstance(outcomes[1], IllegalTransition)
    assert [outcomes[0], outcomes[2]] == [await still.read_call(before), await still.read_call(after)]
    assert len(await still.read_events()) == 2


async def test_a_cancelled_completion_leaves_its_batch(still: Engine) -> None:
    kept, gone = make_leased_call(), make_leased_call()
    await still.insert_calls(kept, gone)
    ends = still.make_completion_batcher()
    writing = asyncio.create_task(ends.finish_call(complete(kept)))
    leaving = asyncio.create_task(ends.finish_call(complete(gone)))
    await asyncio.sleep(0)
    leaving.cancel()

    assert (await writing) == await still.read_call(kept)
    assert await still.read_call(gone) == gone


async def test_a_failing_store_fails_every_completion_and_writes_nothing(still: Engine) -> None:
    calls = [make_leased_call() for _ in range(3)]
    await still.insert_calls(*calls)
    unsteady = still.store = FailingStore(still.store)
    unsteady.refusals = FOREVER
    ends = still.make_completion_batcher()

    outcomes = await asyncio.gather(*(ends.finish_call(complete(call)) for call in calls), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    unsteady.refusals = 0
    assert [await still.read_call(call) for call in calls] == calls
    retried = await asyncio.gather(*(ends.finish_call(complete(call)) for call in calls))
    assert None not in retried


async def test_rows_of_one_principal_that_stay_locked_cost_no_end_of_another(still: Engine) -> None:
    alices, bobs = make_leased_call(), make_leased_call(principal=BOB)
    await still.insert_calls(alices, bobs)
    ends = still.make_completion_batcher(StoreWithLockedRows(still.store, ALICE))

    outcomes = await asyncio.gather(
        *(ends.finish_call(complete(call)) for call in (alices, bobs)), return_exceptions=True
    )

    assert isinstance(outcomes[0], RowsLocked)
    assert outcomes[1] == await still.read_call(bobs)
    assert (await still.read_call(bobs)).is_final
    assert await still.read_call(alices) == alices


async def test_a_store_that_fails_for_an_unknown_reason_before_their_turn_fails_no_later_completion(
    still: Engine,
) -> None:
    """Nothing took the completions from the queue: they and all later ones waited for ever."""
    calls = [make_leased_call() for _ in range(3)]
    await still.insert_calls(*calls)
    unsteady = still.store = FailingStore(still.store)
    unsteady.refusals, unsteady.error = 1 + len(calls), LookupError
    ends = still.make_completion_batcher()

    async with asyncio.timeout(WAIT_SECONDS):
        outcomes = await asyncio.gather(*(ends.finish_call(complete(call)) for call in calls), return_exceptions=True)
        retried = await asyncio.gather(*(ends.finish_call(complete(call)) for call in calls))

    assert [type(outcome) for outcome in outcomes] == [LookupError] * 3
    assert None not in retried


async def test_two_completions_of_one_call_are_written_once(still: Engine) -> None:
    call = make_leased_call()
    await still.insert_calls(call)
    ends = still.make_completion_batcher()

    first, second = await asyncio.gather(
        ends.finish_call(complete(call)),
        ends.finish_call(complete(call, completion_from_result(b"{}", is_error=True))),
    )

    assert first is not None
    assert second is None
    assert len(await still.read_events()) == 1


async def test_submitted_completions_are_written_when_draining_ends(still: Engine) -> None:
    call = make_leased_call()
    await still.insert_calls(call)
    ends = still.make_completion_batcher()
    writing = asyncio.create_task(ends.finish_call(complete(call)))
    await asyncio.sleep(0)

    await ends.drain()

    assert (await still.read_call(call)).status is CallStatus.COMPLETED
    assert await writing is not None
