"""Filters of calls and deliveries: the pages of a combination have what a look at each row finds, newest first.

With --deep every combination is tried, and otherwise a fifth of them, which have each value of a filter together with each
value of any other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any, Final, TypeVar

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_outcome import UNSUCCESSFUL_OUTCOMES, CallOutcome
from ringback.domain.call_rows import CallChange, CallFilter
from ringback.domain.clock import epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId, DeliveryId, WebhookId, ulid
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from tests.support.builders import make_call, make_delivery
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

T = TypeVar("T")

ROWS: Final = 24
SCANNED: Final = 5
LIMIT: Final = 3
RUNS: Final = (0, 2, 1, 1, 3, 1, 2)
TRIES: Final = ((), (1,), (3, 1), (0, 2), (1, 1, 5), (2, 2, 2, 2, 2, 2, 2))
"""Attempts of the deliveries of a call: also more than one scan visits."""
ENDS: Final = (None, CallOutcome.RESULT, CallOutcome.TOOL_ERROR, CallOutcome.TIMED_OUT)
STATES: Final = (DeliveryState.DEAD, DeliveryState.PENDING, DeliveryState.DELIVERED)
STEP: Final = 5
"""From one tried combination to the next. No filter has a multiple of five values, so all change from one to the next."""
Members = Sequence[dict[str, Any]]
"""Arguments of a filter; each combination is tested."""
OWNERS: Final[Sequence[Principal | None]] = (ALICE, None)


@pytest.fixture(autouse=True)
def small_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", SCANNED)


def choose(combinations: Iterable[T], *, deep: bool) -> Sequence[T]:
    return list(combinations)[:: 1 if deep else STEP]


def make_id(prefix: str, number: int) -> str:
    """One each minute."""
    return f"{prefix}_{ulid(epoch_milliseconds(START) + 60_000 * number, number.to_bytes(16))}"


def make_call_number(number: int) -> Call:
    outcome = ENDS[number % len(ENDS)]
    status = CallStatus.COMPLETED if outcome in {CallOutcome.RESULT, CallOutcome.TOOL_ERROR} else CallStatus.FAILED
    return make_call(
        id=CallId(make_id("call", number)),
        principal=BOB if number % 5 == 0 else ALICE,
        client_session_id=f"session-{number % 2}",
        correlation_id=f"report-{number % 3}",
        status=CallStatus.WORKING if outcome is None else status,
        phase=CallPhase.QUEUED if outcome is None else CallPhase.ENDED,
        outcome=outcome,
        runs=RUNS[number % len(RUNS)],
        dispatched_at=START if number % 3 == 0 else None,
        created_at=START + timedelta(minutes=number),
    )


def make_deliveries_of(call: Call, number: int) -> Sequence[Delivery]:
    return [
        replace(
            make_delivery(id=DeliveryId(make_id("dlv", 100 * number + place))),
            principal=call.principal,
            call_id=call.id,
            attempts=attempts,
        )
        for place, attempts in enumerate(TRIES[number % len(TRIES)])
    ]


def make_delivery_number(number: int) -> Delivery:
    return replace(
        make_delivery(id=DeliveryId(make_id("dlv", number))),
        principal=BOB if number % 5 == 0 else ALICE,
        webhook_id=WebhookId(f"wh_{'bob' if number % 5 == 0 else number % 2}"),
        call_id=CallId(f"call_{'bob' if number % 5 == 0 else number % 3}"),
        state=STATES[number % 3],
        attempts=number % 4,
        last_category=AttemptCategory.HTTP_5XX if number % 4 > 1 else None,
        created_at=START + timedelta(minutes=number),
    )


async def read_ids(store: Store, list_page: Callable[[Transaction, str | None], Any]) -> Sequence[str]:
    found: list[str] = []
    position: str | None = None
    while True:
        page: Page[Any, str] = await store.read(lambda tx, position=position: list_page(tx, position))
        assert len(page) <= LIMIT
        found += [each.id for each in page]
        if page.next_position is None:
            return found
        position = page.next_position


def is_within(row: Call | Delivery, where: CallFilter | DeliveryFilter) -> bool:
    since, until = where.since or row.created_at, where.until or row.created_at + timedelta(minutes=1)
    return since <= row.created_at < until and row.id.startswith(where.id_prefix or "")


async def test_calls_are_filtered_by_outcome_start_time_and_beginning_of_the_id(store: Store, *, deep: bool) -> None:
    calls = [make_call_number(number) for number in range(ROWS)]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    def matches(call: Call, owner: Principal | None, where: CallFilter) -> bool:
        return (
            owner in {None, call.principal}
            and where.client_session_id in {None, call.client_session_id}
            and where.correlation_id in {None, call.correlation_id}
            and where.status in {None, call.status}
            and (where.outcomes is None or call.outcome in where.outcomes)
            and where.started in {None, call.dispatched_at is not None}
            and is_within(call, where)
        )

    await store.write(insert)
    outcomes = (None, UNSUCCESSFUL_OUTCOMES, frozenset({CallOutcome.RESULT, CallOutcome.TIMED_OUT}))
    labels: Members = (
        {},
        {"client_session_id": "session-1"},
        {"correlation_id": "report-2"},
        {"status": CallStatus.FAILED},
        {"status": CallStatus.WORKING, "started": False},
        {"started": True},
    )
    times: Members = ({}, {"since": START + timedelta(minutes=5), "until": START + timedelta(minutes=17)})
    prefixes = (None, calls[9].id[:13], calls[9].id, "call_Z")
    for owner, ends, label, time, prefix in choose(product(OWNERS, outcomes, labels, times, prefixes), deep=deep):
        where = CallFilter(**label, **time, outcomes=ends, id_prefix=prefix)
        found = await read_ids(
            store, lambda tx, at, who=owner, which=where: tx.calls.list_page(who, which, position=at, limit=LIMIT)
        )

        assert found == [call.id for call in reversed(calls) if matches(call, owner, where)], (owner, where)


async def test_calls_are_filtered_by_their_runs_and_by_the_attempts_of_their_deliveries(
    store: Store, *, deep: bool
) -> None:
    calls = [make_call_number(number) for number in range(ROWS)]

    async def insert(tx: Transaction) -> None:
        for number, call in enumerate(calls):
            await tx.calls.insert(call)
            await tx.deliveries.insert(make_deliveries_of(call, number))

    def matches(number: int, owner: Principal | None, where: CallFilter) -> bool:
        call = calls[number]
        return (
            owner in {None, call.principal}
            and where.client_session_id in {None, call.client_session_id}
            and where.status in {None, call.status}
            and (where.outcomes is None or call.outcome in where.outcomes)
            and where.started in {None, call.dispatched_at is not None}
            and call.runs >= where.min_runs
            and max(TRIES[number % len(TRIES)], default=0) >= where.min_delivery_attempts
            and is_within(call, where)
        )

    await store.write(insert)
    others: Members = (
        *({}, {"client_session_id": "session-1"}, {"status": CallStatus.FAILED}, {"outcomes": UNSUCCESSFUL_OUTCOMES}),
        *(
            {"since": START + timedelta(minutes=5), "until": START + timedelta(minutes=17)},
            {"id_prefix": calls[9].id[:13]},
            {"started": False},
        ),
    )
    for owner, runs, attempts, other in choose(product(OWNERS, (0, 1, 2, 3), (0, 2, 3, 6), others), deep=deep):
        where = CallFilter(min_runs=runs, min_delivery_attempts=attempts, **other)
        found = await read_ids(
            store, lambda tx, at, who=owner, which=where: tx.calls.list_page(who, which, position=at, limit=LIMIT)
        )
        expected = [calls[number].id for number in reversed(range(ROWS)) if matches(number, owner, where)]
        assert found == expected, (owner, where)


async def test_a_call_is_found_from_its_second_run_on(store: Store) -> None:
    call, delivery = make_call_number(1), make_deliveries_of(make_call_number(1), 1)[0]
    ran_again, retried = CallFilter(min_runs=2), CallFilter(min_delivery_attempts=2)

    async def find(where: CallFilter) -> Sequence[str]:
        return await read_ids(store, lambda tx, at: tx.calls.list_page(ALICE, where, position=at, limit=LIMIT))

    async def insert(tx: Transaction) -> None:
        await tx.calls.insert(replace(call, runs=1))
        await tx.deliveries.insert([delivery])

    await store.write(insert)
    assert (await find(ran_again), await find(retried)) == ([], [])

    again = replace(call, runs=2, dispatched_at=START)
    await store.write(lambda tx: tx.calls.update(again, CallChange.DISPATCHED, expected=call.status, lease_token=None))
    assert await find(ran_again) == [call.id]


async def test_deliveries_are_filtered_by_category_attempts_time_and_beginning_of_the_id(
    store: Store, *, deep: bool
) -> None:
    deliveries = [make_delivery_number(number) for number in range(ROWS)]

    def matches(delivery: Delivery, owner: Principal | None, where: DeliveryFilter) -> bool:
        return (
            owner in {None, delivery.principal}
            and where.state in {None, delivery.state}
            and where.webhook_id in {None, delivery.webhook_id}
            and where.call_id in {None, delivery.call_id}
            and where.category in {None, delivery.last_category}
            and delivery.attempts >= where.min_attempts
            and is_within(delivery, where)
        )

    await store.write(lambda tx: tx.deliveries.insert(deliveries))
    tried: Members = ({}, {"category": AttemptCategory.HTTP_5XX}, {"min_attempts": 3})
    places: Members = ({}, {"webhook_id": WebhookId("wh_1")}, {"call_id": CallId("call_2")})
    times: Members = ({}, {"since": START + timedelta(minutes=5), "until": START + timedelta(minutes=17)})
    prefixes = (None, deliveries[9].id[:12])
    states = (None, DeliveryState.DEAD)
    for owner, state, attempted, place, time, prefix in choose(
        product(OWNERS, states, tried, places, times, prefixes), deep=deep
    ):
        where = DeliveryFilter(state=state, **attempted, **place, **time, id_prefix=prefix)
        found = await read_ids(
            store, lambda tx, at, who=owner, which=where: tx.deliveries.list_page(who, which, position=at, limit=LIMIT)
        )

        assert found == [each.id for each in reversed(deliveries) if matches(each, owner, where)], (owner, where)
