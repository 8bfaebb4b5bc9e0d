"""A process starts with a clock that is 40 days ahead: nothing ends for good before the clock is corrected or confirmed."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from ringback.bootstrap.components import compare_with_last_process
from ringback.domain.call import Call, CallPhase
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.clock import epoch_milliseconds, seconds
from ringback.domain.clock_confirmation import CONFIRMATION_SECONDS
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.errors import CallExpired
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import Webhook, WebhookState
from ringback.services.calls.call_reads import get_own_call
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import WallClockSteps
from tests.support.engine import Engine, OnProgress, ScriptedUpstreams, complete_at_once, wait_until
from tests.support.examples import ALICE
from tests.support.stores import open_test_store
from tests.support.verifications import VerificationHarness, answer_challenge, respond_with

HOUR = 3600.0
DAY = 24 * HOUR
PAUSE = 40 * DAY


class RestingClock(WallClockSteps):
    """No sleep ends: time passes only when the test says so."""

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - a clock's name
        await asyncio.Event().wait()


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What an earlier process left, and a process that has just started 40 days later by its clock."""

    engine: Engine
    clock: RestingClock
    ended: Call
    open: Call
    next_week: Call
    webhook: Webhook
    delivery: Delivery
    requests: list[httpx.Request]

    async def run_everything(self) -> None:
        """The janitor's tasks, an attempt of each due delivery, which fails, and what the runner finds to do."""
        await self.engine.run_recovery()
        await self.engine.make_dispatcher(self._respond).run_once()
        upstreams = ScriptedUpstreams()
        async with self.engine.running_runner(upstreams):
            await wait_until(self._is_queue_empty)
        assert upstreams.called == []
        await self.engine.run_recovery()

    async def run_call(self, call: Call) -> Call:
        async with self.engine.running_runner(ScriptedUpstreams()):
            (ended,) = await self.engine.wait_until_final(call)
            return ended

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(500)

    async def _is_queue_empty(self) -> bool:
        calls = [await self.engine.read_call(each) for each in (self.open, self.next_week)]
        return all(call.phase not in {CallPhase.QUEUED, CallPhase.RUNNING} for call in calls)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    clock = RestingClock()
    now = clock.now()
    webhook = make_webhook(retries=RetryProfile.MINUTES, failing_since=now - seconds(90 * HOUR))
    delivery = make_delivery(webhook_id=webhook.id, due_at=now, give_up_at=now + seconds(HOUR))
    open_call = make_call(deadline_at=now + seconds(HOUR))
    next_week = make_call(
        phase=CallPhase.SCHEDULED, not_before=now + seconds(7 * DAY), deadline_at=now + seconds(7 * DAY + HOUR)
    )
    async with open_test_store(tmp_path, clock) as store:
        engine = Engine(store, clock)
        ended = await engine.finish_call(make_call(deadline_at=now + seconds(HOUR)))
        await engine.insert_calls(open_call, next_week)
        await engine.insert_webhooks(webhook)
        await engine.insert_deliveries(delivery)
        await engine.run_recovery()
    later = RestingClock(clock.wall_time() + seconds(PAUSE), elapsed_seconds=1)
    async with open_test_store(tmp_path, later) as store:
        last = await store.read(lambda tx: tx.scheduling_time.load())
        assert last is not None
        compare_with_last_process(later, last, is_exclusive=True)
        yield Stage(
            engine=Engine(store, later),
            clock=later,
            ended=ended,
            open=open_call,
            next_week=next_week,
            webhook=webhook,
            delivery=delivery,
            requests=[],
        )


async def test_a_wrong_clock_that_is_corrected_ends_nothing(stage: Stage) -> None:
    engine = stage.engine
    await stage.run_everything()
    stage.clock.pass_time(15)
    stage.clock.step(-PAUSE)
    stage.clock.pass_time(1)
    await engine.run_recovery()

    assert await engine.read_result(stage.ended) is not None
    assert (await engine.read_call(stage.next_week)).phase is CallPhase.SCHEDULED
    assert (await engine.read_webhook(stage.webhook.id)).state is WebhookState.ACTIVE
    delivery = await engine.read_delivery(stage.delivery)
    assert len(stage.requests) == delivery.attempts == 1
    assert delivery.state is DeliveryState.PENDING
    assert delivery.due_at == stage.clock.now()  # not in forty days
    assert (await engine.read_call(stage.open)).phase is CallPhase.SCHEDULED
    stage.clock.pass_time(CONFIRMATION_SECONDS)
    assert (await stage.run_call(stage.open)).outcome is CallOutcome.RESULT


async def test_an_honest_pause_ends_everything_some_minutes_late_and_after_an_attempt(stage: Stage) -> None:
    engine = stage.engine
    await stage.run_everything()
    stage.clock.pass_time(CONFIRMATION_SECONDS - 1)
    await engine.run_recovery()
    assert await engine.read_result(stage.ended) is not None

    stage.clock.pass_time(1)
    await engine.run_recovery()
    await engine.make_dispatcher(lambda _: httpx.Response(500)).run_once()

    assert stage.clock.confirmed_now() == stage.clock.now()
    with pytest.raises(CallExpired):
        await engine.store.read(lambda tx: get_own_call(tx, ALICE, stage.ended.id))
    assert (await engine.read_delivery(stage.delivery)).state is DeliveryState.DEAD
    assert (await engine.read_webhook(stage.webhook.id)).state is WebhookState.SUSPENDED
    assert (await stage.run_call(stage.open)).outcome is CallOutcome.REJECTED
    scheduled = await engine.read_call(stage.next_week)
    assert scheduled.outcome is CallOutcome.REJECTED, "the tool did not run"
    assert "Ringback was stopped" in str(scheduled.error)


async def test_calls_of_the_first_minutes_keep_their_own_deadlines_and_results(stage: Stage) -> None:
    engine, clock = stage.engine, stage.clock
    timely, late = (make_call(deadline_at=clock.now() + seconds(each)) for each in (HOUR, 60.0))
    await engine.insert_calls(timely)
    assert (await stage.run_call(timely)).outcome is CallOutcome.RESULT
    leased = await engine.lease_call(late)
    clock.pass_time(CONFIRMATION_SECONDS)
    await engine.run_recovery()

    assert await engine.read_result(timely) is not None
    execution = engine.make_execution(leased, ScriptedUpstreams())
    await execution.run()
    assert (await engine.read_call(late)).outcome is CallOutcome.REJECTED


async def test_a_pause_that_a_wrong_clock_began_is_over(stage: Stage) -> None:
    """Otherwise the receiver would be probed in forty days."""
    pausing = CircuitBreaker(failures=9, openings=9, paused_until=stage.clock.now() + seconds(PAUSE))
    webhook = make_webhook(state=WebhookState.SUSPENDED, breaker=pausing)
    held = make_delivery(
        webhook_id=webhook.id, state=DeliveryState.HELD, give_up_at=stage.clock.now() + seconds(PAUSE + HOUR)
    )
    await stage.engine.insert_webhooks(webhook)
    await stage.engine.insert_deliveries(held)
    await stage.engine.run_recovery()

    assert await stage.engine.make_dispatcher(lambda _: httpx.Response(200)).run_once() >= 1

    assert (await stage.engine.read_delivery(held)).state is DeliveryState.DELIVERED


async def test_a_webhook_that_waited_at_a_wrong_time_is_looked_at_once_the_clock_is_corrected(stage: Stage) -> None:
    """Otherwise this process would look at it again in forty days."""
    engine, clock = stage.engine, stage.clock
    pausing = CircuitBreaker(failures=5, openings=1, paused_until=clock.now() + seconds(15))
    paused = make_webhook(breaker=pausing)
    limited = make_webhook(rate_per_second=0.5)
    deliveries = [
        make_delivery(webhook_id=webhook.id, due_at=clock.now(), give_up_at=clock.now() + seconds(PAUSE))
        for webhook in (paused, limited, limited)
    ]
    await engine.insert_webhooks(paused, limited)
    await engine.insert_deliveries(*deliveries)
    dispatcher = engine.make_dispatcher(lambda _: httpx.Response(200))
    await dispatcher.run_once()
    waiting = [await engine.read_delivery(each) for each in deliveries]
    assert [each.state for each in waiting].count(DeliveryState.PENDING) == 2

    clock.step(-PAUSE)
    clock.pass_time(3)
    await engine.run_recovery()
    await dispatcher.run_once()

    delivered = [await engine.read_delivery(each) for each in deliveries]
    assert {each.state for each in delivered} == {DeliveryState.DELIVERED}


async def test_an_event_of_a_time_when_the_clock_is_far_ahead_reaches_webhooks_that_have_not_expired(
    tmp_path: Path,
) -> None:
    """Otherwise nothing would ever send it: the webhooks of a session and MCP subscriptions have an expiry."""
    clock = RestingClock()
    lasting, expired = (make_webhook(expires_at=clock.now() + seconds(each)) for each in (DAY, 1))
    async with open_test_store(tmp_path, clock) as store:
        engine = Engine(store, clock)
        await engine.insert_webhooks(lasting, expired)
        clock.pass_time(2)
        clock.step(20 * DAY)
        clock.pass_time(1)

        await engine.finish_call(make_call(deadline_at=clock.now() + seconds(HOUR)))

        assert [each.webhook_id for each in await engine.read_deliveries()] == [lasting.id]


async def test_a_callback_that_failed_while_the_clock_was_some_days_ahead_is_repeated_once_it_is_corrected(
    tmp_path: Path,
) -> None:
    """Otherwise it would be repeated as many days late."""
    clock = RestingClock()
    webhook = make_webhook()
    async with open_test_store(tmp_path, clock) as store:
        engine = Engine(store, clock)
        await engine.insert_webhooks(webhook)
        await engine.run_recovery()
        clock.step(2 * DAY)
        clock.pass_time(1)
        delivery = make_delivery(webhook_id=webhook.id, due_at=clock.now(), give_up_at=clock.now() + seconds(4 * DAY))
        await engine.insert_deliveries(delivery)
        await engine.make_dispatcher(lambda _: httpx.Response(500)).run_once()

        clock.step(-2 * DAY)
        clock.pass_time(1)
        await engine.run_recovery()
        await engine.make_dispatcher(lambda _: httpx.Response(200)).run_once()

        assert (await engine.read_delivery(delivery)).state is DeliveryState.DELIVERED


async def test_a_challenge_that_a_wrong_clock_planned_is_sent_once_the_clock_is_corrected(stage: Stage) -> None:
    """Otherwise the webhook would wait for forty days, or until its owner asks for another challenge."""
    verifications = VerificationHarness(stage.engine, respond_with(404))
    webhook = await verifications.register_webhook()
    assert await verifications.send_due_challenges() == 1
    stage.clock.step(-PAUSE)
    stage.clock.pass_time(1)
    verifications.answer = answer_challenge

    assert await verifications.send_due_challenges() == 1

    assert (await stage.engine.read_webhook(webhook.id)).state is WebhookState.ACTIVE


async def test_a_second_start_within_the_first_minutes_is_unconfirmed_again(stage: Stage) -> None:
    await stage.engine.run_recovery()
    stage.clock.pass_time(120)
    await stage.engine.run_recovery()

    last = await stage.engine.store.read(lambda tx: tx.scheduling_time.load())
    assert last is not None
    assert epoch_milliseconds(stage.clock.now()) - epoch_milliseconds(last) == PAUSE * 1000
    assert stage.clock.confirm_after(last)


def test_a_day_off_is_an_ordinary_pause() -> None:
    clock = WallClockSteps()

    assert [clock.confirm_after(clock.now() - seconds(each)) for each in (DAY - 1, DAY + 1)] == [False, True]


async def test_a_step_far_ahead_while_calls_run_and_wait_ends_none_and_starts_what_is_due_once_it_is_confirmed(
    tmp_path: Path,
) -> None:
    clock = RestingClock()
    running = make_call(deadline_at=clock.now() + seconds(HOUR))
    later = clock.now() + seconds(20 * DAY)
    scheduled = make_call(phase=CallPhase.SCHEDULED, not_before=later, deadline_at=later + seconds(HOUR))

    async def step_ahead(call: Call, on_progress: OnProgress) -> CallCompletion:
        if call.id == running.id:
            clock.step(20 * DAY + 60)
            clock.pass_time(1)
            execution.notice_cancellation()  # it reads the call again, and looks at the deadline
            for _ in range(40):
                await asyncio.sleep(0)
        return await complete_at_once(call, on_progress)

    async with open_test_store(tmp_path, clock) as store:
        engine = Engine(store, clock)
        await engine.insert_calls(scheduled)
        leased = await engine.lease_call(running)
        execution = engine.make_execution(leased, ScriptedUpstreams(step_ahead))
        await execution.run()
        await engine.run_recovery()
        assert (await engine.read_call(running)).outcome is CallOutcome.RESULT
        assert (await engine.read_call(scheduled)).phase is CallPhase.SCHEDULED

        clock.pass_time(CONFIRMATION_SECONDS)
        async with engine.running_runner(ScriptedUpstreams()):
            (ended,) = await engine.wait_until_final(scheduled)
    assert ended.outcome is CallOutcome.RESULT
