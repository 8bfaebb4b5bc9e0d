"""The database work for webhooks that do not match an event, and for a registration with an old cursor."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from ringback.domain.catch_up import STEP_EVENTS_MAX
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery import Delivery
from ringback.domain.ports import Transaction
from ringback.notifier.catch_up import CatchUpWorker
from ringback.storage.sqlite import database
from tests.support.builders import make_event, make_webhook
from tests.support.examples import ALICE
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service
from tests.support.vm_steps import VmSteps, counting_vm_steps

FEW, MANY = 10, 1_000
ADDITIONAL_STEPS_MAX: Final = 500
"""The allowed difference: deeper trees, not more rows."""


@dataclass(slots=True)
class StepCounter:
    """A service with a counter of its database's work."""

    service: ServiceUnderTest
    alice: httpx.AsyncClient
    steps: list[VmSteps]

    @property
    def count(self) -> int:
        return sum(steps.count for steps in self.steps)

    async def register(self, count: int) -> None:
        """Register webhooks, each with its own filters."""
        webhooks = [make_webhook(correlation_id=f"other-{number}", match_correlation=True) for number in range(count)]

        async def insert(tx: Transaction) -> None:
            for webhook in webhooks:
                await tx.webhooks.insert(webhook)

        await self.service.store.write(insert)

    async def count_steps_of_call(self) -> tuple[int, int]:
        """The work of the start and of the end of a call."""
        before = self.count
        started = await self.alice.post("/v1/calls", json=CALL_BODY)
        between = self.count
        await self.service.finish_call(started.json()["call"]["id"])
        return between - before, self.count - between

    async def append(self, count: int) -> None:
        """Write events of calls that then expire."""
        events = [make_event(seq=seq) for seq in range(1, count + 1)]

        async def insert(tx: Transaction) -> None:
            await tx.events.reserve_seqs(ALICE, count)
            await tx.events.insert(events)

        await self.service.store.write(insert)


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[StepCounter]:
    open_connection = database.open_connection
    with ExitStack() as stack:
        steps = list[VmSteps]()

        def open_and_count(path: Path, *, lock_wait_seconds: float) -> sqlite3.Connection:
            connection = open_connection(path, lock_wait_seconds=lock_wait_seconds)
            steps.append(stack.enter_context(counting_vm_steps(connection)))
            return connection

        monkeypatch.setattr(database, "open_connection", open_and_count)
        async with running_service(tmp_path) as service:
            yield StepCounter(service, await service.create_client("alice"), steps)


@pytest.mark.requirement("R25")
@pytest.mark.sqlite_only("counts the steps of SQLite's virtual machine")
async def test_webhooks_that_do_not_match_add_no_rows_to_the_start_and_end_of_a_call(
    watched: StepCounter,
) -> None:
    await watched.register(FEW)
    await watched.count_steps_of_call()  # the first call inserts rows that later calls update
    start_among_few, end_among_few = await watched.count_steps_of_call()
    await watched.register(MANY)
    start_among_many, end_among_many = await watched.count_steps_of_call()

    assert start_among_many - start_among_few <= ADDITIONAL_STEPS_MAX
    assert end_among_many - end_among_few <= ADDITIONAL_STEPS_MAX


@pytest.mark.requirement("R22")
async def test_a_registration_with_an_old_cursor_returns_before_the_catch_up_ends(watched: StepCounter) -> None:
    await watched.append(2 * STEP_EVENTS_MAX + 1)

    answer = await watched.alice.post(
        "/v1/webhooks", json={"url": CALLBACK_URL, "cursor": encode_log_position(LogPosition(0))}
    )

    assert answer.status_code == 201
    assert len(await watched.service.read_deliveries("alice")) == STEP_EVENTS_MAX
    worker = CatchUpWorker(
        store=watched.service.store, catch_ups=watched.service.catch_ups, clock=watched.service.clock
    )
    while await worker.run_once():
        pass
    assert [delivery.seq for delivery in sorted_by_place(await watched.service.read_deliveries("alice"))] == list(
        range(1, 2 * STEP_EVENTS_MAX + 2)
    )


@pytest.mark.requirement("R22")
async def test_a_webhook_that_catches_up_is_listed_as_a_recipient(watched: StepCounter) -> None:
    await watched.append(STEP_EVENTS_MAX)
    webhook = (
        await watched.alice.post(
            "/v1/webhooks", json={"url": CALLBACK_URL, "cursor": encode_log_position(LogPosition(0))}
        )
    ).json()

    started = (await watched.alice.post("/v1/calls", json=CALL_BODY)).json()

    assert [each["id"] for each in started["webhooks"]] == [webhook["id"]]


def sorted_by_place(deliveries: list[Delivery]) -> list[Delivery]:
    return sorted(deliveries, key=lambda delivery: delivery.seq or 0)
