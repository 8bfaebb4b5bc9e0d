"""A unit of work runs as many statements for a batch of any size: on PostgreSQL each is a round trip.

`pytest -s` prints the statements of the units on the way of a call.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import Call, CallPhase
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.delivery import AttemptResult, Delivery
from ringback.domain.ports import Store, Transaction
from ringback.measurements import Measurements
from ringback.notifier.attempts import AttemptRecorder, FinishedAttempt
from ringback.notifier.call_ends import LeasedCompletion
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, ConcurrencyLimits
from ringback.notifier.http.target import TargetCache
from ringback.notifier.leasing import DeliveryLeasing
from ringback.notifier.permits import Permit, ReceiverKey
from ringback.storage.rows.unit import SqlRows, UnitContext
from tests.support.builders import make_attempt, make_call, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.databases import TEST_DATABASES
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.resolvers import PUBLIC_POLICY
from tests.support.stored_work import COMPLETED_RESULT

FEW, MANY = 2, 64
DELIVERED_AT_ONCE: Final = {"sqlite": 15, "postgres": 64}
"""Ends whose deliveries to two webhooks are one insert: on SQLite inserts pause after 32 deliveries."""
STATEMENTS_OF_ENDS_MAX: Final = {"sqlite": 12, "postgres": 3}
STATEMENTS_OF_ATTEMPTS_MAX: Final = {"sqlite": 4, "postgres": 3}
STATEMENTS_OF_A_LEASE_MAX: Final = {"sqlite": 3, "postgres": 2}
STATEMENTS_OF_A_LEASE_OF_CALLS_MAX: Final = {"sqlite": 4, "postgres": 1}
STATEMENTS_OF_A_LEASING_UNIT_MAX: Final = {"sqlite": 6, "postgres": 5}


class CountingStatements:
    """Implements `rows.statements.Statements` around another, and notes the names of those that run."""

    def __init__(self, statements: Any, noun: str, ran: list[str]) -> None:
        self._statements = statements
        self._noun = noun
        self._ran = ran

    async def fetch_all(self, name: str, /, **parameters: Any) -> Any:
        return await self._run("fetch_all", name, **parameters)

    async def fetch_one(self, name: str, /, **parameters: Any) -> Any:
        return await self._run("fetch_one", name, **parameters)

    async def fetch_records(self, name: str, codec: Any, /, **parameters: Any) -> Any:
        return await self._run("fetch_records", name, codec, **parameters)

    async def fetch_record(self, name: str, codec: Any, /, **parameters: Any) -> Any:
        return await self._run("fetch_record", name, codec, **parameters)

    async def execute(self, name: str, /, **parameters: Any) -> Any:
        return await self._run("execute", name, **parameters)

    async def execute_many(self, name: str, /, rows: Iterable[Mapping[str, Any]]) -> None:
        await self._run("execute_many", name, rows)

    def without_locks(self) -> "CountingStatements":
        return CountingStatements(self._statements.without_locks(), self._noun, self._ran)

    def array(self, values: Any, /) -> Any:
        return self._statements.array(values)

    def parameters(self, name: str, /) -> frozenset[str]:
        return self._statements.parameters(name)

    async def _run(self, method: str, name: str, /, *arguments: Any, **parameters: Any) -> Any:
        self._ran.append(f"{self._noun}.{name}")
        return await getattr(self._statements, method)(name, *arguments, **parameters)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that have run."""
    names: list[str] = []
    initialise = SqlRows.__init__

    def count(rows: SqlRows, unit: UnitContext) -> None:
        initialise(rows, unit)
        setattr(rows, "_sql", CountingStatements(getattr(rows, "_sql"), rows.noun, names))  # noqa: B009, B010

    monkeypatch.setattr(SqlRows, "__init__", count)
    return names


def take(ran: list[str], unit: str) -> Sequence[str]:
    """What has run since the last time."""
    names, ran[:] = list(ran), []
    print(f"{TEST_DATABASES.kind} {unit}: {len(names)} statements: {' '.join(names)}")  # noqa: T201 - for people, with -s
    return names


@pytest.fixture
async def engine(store: Store, clock: FakeClock) -> Engine:
    return Engine(store, clock)


async def insert_leased_calls(engine: Engine, count: int) -> list[Call]:
    calls = [
        make_call(phase=CallPhase.RUNNING, lease_owner="one", lease_token="held", lease_until=engine.clock.now())
        for _ in range(count)
    ]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await engine.store.write(insert)
    return calls


async def test_a_batch_of_ends_runs_as_many_statements_as_one_end(engine: Engine, ran: list[str]) -> None:
    await engine.insert_webhooks(make_webhook(), make_webhook())

    async def count_for(count: int) -> Sequence[str]:
        calls = await insert_leased_calls(engine, count)
        ends = [
            LeasedCompletion(
                call_id=call.id,
                principal=call.principal,
                lease_token="held",
                completion=COMPLETED_RESULT,
                progress=None,
            )
            for call in calls
        ]
        ran.clear()
        finished = await engine.store.write(lambda tx: engine.recorder.finish_leased_calls(tx, ends))
        assert None not in finished
        return take(ran, f"{count} ends")

    await count_for(1)  # begins the log
    few, many = await count_for(FEW), await count_for(DELIVERED_AT_ONCE[TEST_DATABASES.kind])

    assert len(few) == len(many) <= STATEMENTS_OF_ENDS_MAX[TEST_DATABASES.kind]


async def test_a_batch_of_attempts_runs_as_many_statements_as_one_attempt(engine: Engine, ran: list[str]) -> None:
    webhook = make_webhook()
    await engine.insert_webhooks(webhook)
    recorder = AttemptRecorder(
        recorder=engine.recorder,
        ids=engine.ids,
        limiter=ConcurrencyLimiter(ConcurrencyLimits()),
        random_fraction=lambda: 0.5,
    )

    async def count_for(count: int) -> Sequence[str]:
        await engine.store.write(
            lambda tx: tx.deliveries.insert([make_delivery(webhook_id=webhook.id) for _ in range(count)])
        )
        ran.clear()
        leased = await lease(engine, webhook.id, count)
        assert len(take(ran, f"a lease of {count} deliveries")) <= STATEMENTS_OF_A_LEASE_MAX[TEST_DATABASES.kind]
        finished = [
            FinishedAttempt(
                delivery=each,
                attempt=make_attempt(each),
                result=AttemptResult(category=AttemptCategory.DELIVERED, status_code=204),
                origin="https://agent.example",
                permit=Permit(webhook.id, ReceiverKey(ALICE, "https://agent.example")),
            )
            for each in leased
        ]
        recorded = await engine.store.write(lambda tx: recorder.record_attempts(tx, finished))
        assert len(recorded) == count
        return take(ran, f"{count} attempts")

    few, many = await count_for(FEW), await count_for(MANY)

    assert len(many) <= len(few) <= STATEMENTS_OF_ATTEMPTS_MAX[TEST_DATABASES.kind], "the later ones change no health"


async def lease(engine: Engine, webhook_id: Any, count: int) -> Sequence[Delivery]:
    now = engine.clock.now()
    return await engine.store.write(
        lambda tx: tx.delivery_queue.lease_due(
            webhook_id, now=now, owner="one", token="held", until=now + seconds(30), limit=count, ordered=False
        )
    )


async def test_deliveries_to_many_webhooks_are_leased_with_as_many_statements_as_to_a_few(
    engine: Engine, ran: list[str]
) -> None:
    async def count_for(count: int) -> Sequence[str]:
        webhooks = [
            make_webhook(url=f"https://agent-{number}.example/", last_delivery_at=engine.clock.now())
            for number in range(count)
        ]
        await engine.insert_webhooks(*webhooks)
        deliveries = [make_delivery(webhook_id=webhook.id) for webhook in webhooks for _ in range(3)]
        await engine.store.write(lambda tx: tx.deliveries.insert(deliveries))
        leasing = DeliveryLeasing(
            store=engine.store,
            ids=engine.ids,
            limiter=ConcurrencyLimiter(ConcurrencyLimits()),
            target_cache=TargetCache(PUBLIC_POLICY),
            owner="one",
            lease_seconds=30,
            clock=engine.clock,
            measurements=Measurements(),
        )
        ran.clear()
        batch = await leasing.lease_due()
        assert sorted(each.delivery.id for each in batch.deliveries) == sorted(each.id for each in deliveries)
        return take(ran, f"a lease of deliveries to {count} webhooks")

    assert (
        len(await count_for(FEW))
        == len(await count_for(MANY - 1))
        <= STATEMENTS_OF_A_LEASING_UNIT_MAX[TEST_DATABASES.kind]
    )


async def test_calls_are_leased_with_as_many_statements_as_one(engine: Engine, ran: list[str]) -> None:
    async def count_for(count: int) -> Sequence[str]:
        calls = [make_call() for _ in range(count)]

        async def insert(tx: Transaction) -> None:
            for call in calls:
                await tx.calls.insert(call)

        await engine.store.write(insert)
        ran.clear()
        until = engine.clock.now() + seconds(30)
        leased = await engine.store.write(
            lambda tx: tx.call_queue.lease_queued("git", owner="one", token="held", until=until, limit=count)
        )
        assert len(leased) == count
        return take(ran, f"a lease of {count} calls")

    assert (
        len(await count_for(FEW))
        == len(await count_for(MANY))
        <= STATEMENTS_OF_A_LEASE_OF_CALLS_MAX[TEST_DATABASES.kind]
    )


async def test_a_dispatch_is_two_statements(engine: Engine, ran: list[str]) -> None:
    (call,) = await insert_leased_calls(engine, 1)
    ran.clear()

    async def dispatch(tx: Transaction) -> bool:
        leased = await tx.calls.get(call.id)
        assert leased is not None
        dispatched = replace(leased, dispatched_at=tx.now(), runs=1)
        return await tx.calls.update(dispatched, CallChange.DISPATCHED, expected=leased.status, lease_token="held")

    assert await engine.store.write(dispatch)
    assert len(take(ran, "a dispatch")) == 2
