"""Neither the length of the log nor what one webhook catches up with delays others: each step is bounded."""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from ringback.domain.catch_up import STEP_EVENTS_MAX
from ringback.domain.webhook import WebhookState
from ringback.notifier import catch_up as catching_up
from ringback.notifier import fan_out
from ringback.storage.rows import events as event_rows
from ringback.storage.sqlite import database
from tests.support.builders import make_call, make_webhook
from tests.support.catch_ups import (
    LONG_LOG,
    SHORT_LOG,
    append,
    finish_catching_up,
    list_received_seqs,
    list_sent_seqs,
    read_seq,
    start_catch_up,
)
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import BOB
from tests.support.stores import open_test_store
from tests.support.vm_steps import counting_vm_steps


async def count_registration_steps(folder: Path, events: int, monkeypatch: pytest.MonkeyPatch) -> Sequence[int]:
    """What the registration does in SQLite, and what the step after it does."""
    clock, connections = FakeClock(), list[sqlite3.Connection]()
    open_connection = database.open_connection

    def open_and_keep(path: Path, *, lock_wait_seconds: float) -> sqlite3.Connection:
        connections.append(open_connection(path, lock_wait_seconds=lock_wait_seconds))
        return connections[-1]

    monkeypatch.setattr(database, "open_connection", open_and_keep)
    async with open_test_store(folder, clock) as store:
        engine, webhook = Engine(store, clock), make_webhook()
        await append(engine, events)
        with counting_vm_steps(connections[-1]) as registering:
            await start_catch_up(engine, webhook)
        with counting_vm_steps(connections[-1]) as going_on:
            assert await engine.make_catch_up_worker().run_once()
        assert len(await list_received_seqs(engine, webhook)) == 2 * STEP_EVENTS_MAX
    return registering.count, going_on.count


@pytest.mark.sqlite_only("counts the steps of SQLite's virtual machine")
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


async def test_a_step_reads_few_events_if_their_data_is_large(still: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rows, "PAGE_BYTES_MAX", 1)
    await append(still, 3)
    webhook = make_webhook()

    await start_catch_up(still, webhook)

    assert await list_received_seqs(still, webhook) == [1]
    assert await finish_catching_up(still) == 2
    assert await list_received_seqs(still, webhook) == [1, 2, 3]


async def test_a_step_ends_when_its_bodies_weigh_enough(still: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "STEP_BODY_BYTES_MAX", 1)
    calls = [await still.finish_call(make_call()) for _ in range(3)]
    webhook = make_webhook(include_result=True)

    await start_catch_up(still, webhook)

    assert await list_received_seqs(still, webhook) == [1]
    assert await finish_catching_up(still) == 2
    assert [delivery.call_id for delivery in await list_sent_seqs(still, webhook)] == [call.id for call in calls]


@pytest.mark.usefixtures("short_steps")
async def test_what_is_more_than_may_be_held_is_given_up_and_reported_as_a_gap(
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
async def test_what_retention_removed_before_its_turn_is_a_gap(still: Engine) -> None:
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
