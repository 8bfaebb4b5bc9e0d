"""One event goes to hundreds of webhooks in one transaction, and the event loop has a turn after every few deliveries."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

import httpx
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Transaction
from ringback.notifier.fan_out import DELIVERIES_AT_ONCE
from ringback.notifier.payload import PayloadBuilder
from ringback.signing.sealing import AesGcmSealer
from ringback.storage.rows import webhooks
from tests.support.builders import make_call, make_verified_webhook
from tests.support.clock import FakeClock
from tests.support.engine import CANCELLED_COMPLETION, Engine, running_dispatcher, wait_until
from tests.support.stored_work import COMPLETED_RESULT

WEBHOOKS: Final = 5 * DELIVERIES_AT_ONCE + 1


@dataclass
class Turns:
    """Turns of the event loop, and how often something was done within each."""

    number: int = 0
    done: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])

    def largest(self, name: str) -> int:
        return max(self.done[name].values(), default=0)

    def total(self, name: str) -> int:
        return self.done[name].total()

    def count(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        counter = self.done[name] = Counter[int]()

        @wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            counter[self.number] += 1
            return function(*arguments, **named)

        return counted


@asynccontextmanager
async def counted_turns() -> AsyncGenerator[Turns]:
    turns = Turns()

    async def turn() -> None:
        while True:
            turns.number += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(turn())
    try:
        yield turns
    finally:
        task.cancel()


async def register_many(engine: Engine) -> None:
    await engine.insert_webhooks(
        *(make_verified_webhook(url=f"https://agent-{number}.example/") for number in range(WEBHOOKS))
    )


async def test_a_few_deliveries_are_built_and_sealed_between_two_turns_of_the_event_loop(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_many(still)
    call = make_call()
    await still.insert_calls(call)
    async with counted_turns() as turns:
        monkeypatch.setattr(PayloadBuilder, "build_event_body", turns.count("made", PayloadBuilder.build_event_body))
        monkeypatch.setattr(AesGcmSealer, "seal", turns.count("sealed", AesGcmSealer.seal))
        await still.store.write(lambda tx: still.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None))

    assert (turns.total("made"), turns.total("sealed")) == (WEBHOOKS, WEBHOOKS)
    assert turns.largest("made") <= DELIVERIES_AT_ONCE
    assert turns.largest("sealed") <= DELIVERIES_AT_ONCE
    assert len(await still.read_deliveries()) == WEBHOOKS


async def test_uncached_webhooks_are_read_in_steps(still: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "READ_AT_ONCE", 20)
    await register_many(still)
    async with counted_turns() as turns:
        monkeypatch.setattr(AesGcmSealer, "unseal", turns.count("unsealed", AesGcmSealer.unseal))
        await still.finish_call(make_call())

    assert turns.total("unsealed") == WEBHOOKS
    assert turns.largest("unsealed") <= 20


@pytest.mark.sqlite_only("a read of PostgreSQL takes longer than many steps")
async def test_other_transactions_run_between_the_steps_and_see_all_deliveries_or_none(still: Engine) -> None:
    await register_many(still)
    call = make_call()
    await still.insert_calls(call)
    writing = asyncio.create_task(
        still.store.write(lambda tx: still.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None))
    )
    seen = Counter[int]()
    while not writing.done():
        seen[len(await still.read_deliveries())] += 1
        await asyncio.sleep(0)

    assert set(seen) <= {0, WEBHOOKS}
    assert seen[0] > WEBHOOKS / DELIVERIES_AT_ONCE
    assert len(await still.read_deliveries()) == WEBHOOKS


async def test_a_failure_after_some_steps_leaves_no_row_and_no_permit(still: Engine, fake_clock: FakeClock) -> None:
    await register_many(still)
    call = make_call()
    await still.insert_calls(call)

    async def finish_and_fail(tx: Transaction) -> None:
        await still.recorder.finish_call(tx, call, CANCELLED_COMPLETION, lease_token=None)
        raise ZeroDivisionError

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(204)

    dispatcher = still.make_dispatcher(answer)
    async with running_dispatcher(dispatcher):
        with pytest.raises(ZeroDivisionError):
            await still.store.write(finish_and_fail)
        assert await still.read_deliveries() == []
        limiter = dispatcher._limiter  # pyright: ignore[reportPrivateUsage] - permits show nowhere else
        assert limiter.in_flight == 0

        await still.store.write(lambda tx: still.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None))

        async def all_delivered() -> bool:
            return {each.state for each in await still.read_deliveries()} == {DeliveryState.DELIVERED}

        await wait_until(all_delivered)
