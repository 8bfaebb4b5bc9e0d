"""After an outage: one attempt first, then at most about twice the usual rate, until nothing waits any more."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook
from ringback.notifier import backlog_limiter, origin_rates
from ringback.notifier.backlog_limiter import (
    BACKLOG_GONE_SECONDS,
    FLOOR_PER_SECOND,
    RATE_FACTOR,
    STEADY_FACTOR,
    BacklogLimiter,
)
from ringback.notifier.origin_rates import WINDOW_SECONDS, OriginRates
from ringback.notifier.permits import Permit, ReceiverKey
from tests.support.builders import make_verified_webhook, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

HERE, THERE = "https://here.example", "https://there.example"
OPEN = CircuitBreaker(failures=5, openings=1, paused_until=START)
MANY = 100_000
"""More permits than any limit leaves."""


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def permit_of(webhook: Webhook, origin: str = HERE) -> Permit:
    return Permit(webhook.id, ReceiverKey(webhook.principal, origin))


class Backlog:
    """A webhook with more deliveries than it gets permits for."""

    def __init__(self, limiter: BacklogLimiter, webhook: Webhook, origin: str = HERE) -> None:
        self.limiter, self.webhook, self.origin = limiter, webhook, origin

    def work_steadily(self, per_second: int, *, until: float) -> None:
        """Callbacks that succeed, from now until so many seconds after START."""
        for step in range(round(until)):
            self.limiter.consume_permit(permit_of(self.webhook, self.origin), now=after(step), count=per_second)
        self.respond(until)

    def respond(self, at: float, *, count: int = 1, is_success: bool = True) -> None:
        for _ in range(count):
            self.limiter.note_response(permit_of(self.webhook, self.origin), is_success=is_success, now=after(at))

    def fail(self, at: float, *, since: float) -> None:
        """The dispatcher reads the webhook while its breaker is open or half-open."""
        failing = replace(self.webhook, breaker=OPEN, failing_since=after(since))
        self.limiter.follow_outage(failing, self.origin, now=after(at))

    def recover(self, at: float) -> None:
        """The dispatcher reads the webhook after a success."""
        self.limiter.follow_outage(replace(self.webhook, breaker=CLOSED_BREAKER), self.origin, now=after(at))

    def permits(self, at: float, *, in_flight: int = 0) -> int:
        permits = self.limiter.limit_permits(self.origin, MANY, in_flight, now=after(at))
        return self.limiter.limit_permits(self.webhook.id, permits, in_flight, now=after(at))

    def send(self, at: float, seconds: float, *, new_per_step: int = 0) -> int:
        """The attempts that the limits allow in this time, looked at every 50 ms. Each is answered at once."""
        sent = 0
        for step in range(round(seconds * 20)):
            now = at + step / 20
            for _ in range(new_per_step):
                self.limiter.count_new_delivery(self.origin, now=after(now))
            while 0 < (permits := self.permits(now)) < MANY:
                self.limiter.consume_permit(permit_of(self.webhook, self.origin), now=after(now), count=permits)
                self.respond(now, count=permits)
                sent += permits
        return sent


@pytest.fixture
def backlog() -> Backlog:
    return Backlog(BacklogLimiter(), make_verified_webhook())


def test_a_receiver_without_an_outage_is_not_limited(backlog: Backlog) -> None:
    backlog.work_steadily(100, until=12)
    backlog.recover(12)

    assert backlog.permits(12) == MANY
    assert backlog.limiter.is_idle


def test_each_response_allows_one_more_attempt_in_flight(backlog: Backlog) -> None:
    backlog.work_steadily(1_000, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)

    assert [backlog.permits(30, in_flight=each) for each in (0, 1)] == [1, 0]
    backlog.respond(30, count=3)
    assert [backlog.permits(30, in_flight=each) for each in (0, 2, 4)] == [4, 2, 0]


def test_a_backlog_is_sent_at_no_more_than_twice_the_steady_rate(backlog: Backlog) -> None:
    backlog.work_steadily(200, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)

    assert [round(backlog.send(at, 1) / 200, 1) for at in range(30, 40)] == [1.9, *[RATE_FACTOR] * 9]


def test_the_backlog_of_a_rare_receiver_has_the_lowest_rate_and_a_small_one_is_sent_at_once(backlog: Backlog) -> None:
    backlog.work_steadily(1, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)

    assert backlog.send(30, 0.05) == FLOOR_PER_SECOND
    assert backlog.send(31, 10) == pytest.approx(11 * FLOOR_PER_SECOND, abs=5)


def test_an_unknown_receiver_begins_with_the_lowest_rate_which_grows_by_as_much_every_ten_seconds(
    backlog: Backlog,
) -> None:
    backlog.fail(20, since=12)
    backlog.recover(30)

    sent = [backlog.send(30 + each, 1) for each in range(301)]

    assert [sent[each] / FLOOR_PER_SECOND for each in (5, 100, 300)] == pytest.approx([1, 10, 30], rel=0.05)


def test_a_backlog_that_lasts_far_longer_than_the_outage_is_sent_faster(backlog: Backlog) -> None:
    backlog.work_steadily(200, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)
    steady_seconds = STEADY_FACTOR * (30 - 12)

    sent = [backlog.send(30 + each, 1) for each in range(round(2 * steady_seconds))]

    assert max(sent[: round(steady_seconds)]) <= 2 * 200
    assert sent[-1] == pytest.approx(2 * RATE_FACTOR * 200, rel=0.05)


def test_new_callbacks_at_a_higher_rate_raise_the_limit(backlog: Backlog) -> None:
    backlog.work_steadily(100, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)

    backlog.send(30, WINDOW_SECONDS + 1, new_per_step=20)

    assert backlog.send(41, 1) == pytest.approx(RATE_FACTOR * 400, rel=0.1)


def test_the_limits_end_when_nothing_has_waited_for_them_for_a_while(backlog: Backlog) -> None:
    backlog.work_steadily(200, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)
    backlog.send(30, 5)

    assert backlog.permits(35 + BACKLOG_GONE_SECONDS - 0.5) < MANY
    assert backlog.permits(35 + BACKLOG_GONE_SECONDS + 0.5) == MANY
    assert backlog.limiter.is_idle


def test_the_rate_of_a_backlog_does_not_count_for_the_next_outage(backlog: Backlog) -> None:
    backlog.work_steadily(200, until=12)
    for outage_at in (20, 60, 100):
        backlog.fail(outage_at, since=outage_at)
        backlog.recover(outage_at + 15)
        backlog.send(outage_at + 15, 12)

    assert backlog.send(128, 1) <= 2 * 200


def test_a_receiver_that_fails_again_begins_again_with_one_attempt(backlog: Backlog) -> None:
    backlog.work_steadily(200, until=12)
    backlog.fail(20, since=12)
    backlog.recover(30)
    backlog.send(30, 2)
    backlog.fail(40, since=33)
    backlog.recover(48)

    assert backlog.permits(48) == 1


def test_the_webhooks_of_an_origin_share_its_limit_and_another_origin_has_none(backlog: Backlog) -> None:
    other, elsewhere = make_verified_webhook(), make_verified_webhook()
    backlog.fail(20, since=12)
    backlog.recover(30)

    assert Backlog(backlog.limiter, other).permits(30) == 1
    assert Backlog(backlog.limiter, elsewhere, THERE).permits(30) == MANY


def test_a_webhook_that_failed_alone_is_limited_alone(backlog: Backlog) -> None:
    neighbour = Backlog(backlog.limiter, make_verified_webhook())
    neighbour.work_steadily(100, until=12)
    backlog.fail(12, since=5)
    backlog.recover(20)

    assert (backlog.permits(20), neighbour.permits(20)) == (1, MANY)
    assert backlog.send(20, 0.05) == FLOOR_PER_SECOND


@pytest.mark.parametrize("is_other_delivered", [True, False])
def test_a_principal_that_failed_while_others_were_delivered_slows_nobody_at_the_origin(
    *, is_other_delivered: bool
) -> None:
    limiter, key = BacklogLimiter(), ReceiverKey(ALICE, HERE).breaker_key
    limiter.follow_breaker(key, is_open=True, now=START)
    later = START + timedelta(seconds=15)
    if is_other_delivered:
        permit = Permit(make_webhook().id, ReceiverKey(BOB, HERE))
        limiter.consume_permit(permit, now=later)
        limiter.note_response(permit, is_success=True, now=later)

    limiter.follow_breaker(key, is_open=False, now=later)

    assert limiter.is_idle is is_other_delivered


def test_the_webhooks_of_one_origin_that_recover_one_after_another_do_not_begin_anew_each_time(
    backlog: Backlog,
) -> None:
    other = Backlog(backlog.limiter, make_verified_webhook())
    backlog.fail(20, since=12)
    other.fail(20, since=13)
    backlog.recover(30)
    backlog.respond(30, count=5)

    other.recover(30)

    assert backlog.permits(30) == 6


def test_a_webhook_that_has_moved_to_another_origin_since_is_not_limited(backlog: Backlog) -> None:
    backlog.fail(20, since=12)
    moved = Backlog(backlog.limiter, backlog.webhook, THERE)

    moved.recover(30)

    assert moved.permits(30) == MANY


def test_the_principals_of_an_origin_take_turns(backlog: Backlog) -> None:
    limiter, other = backlog.limiter, make_verified_webhook(principal=Principal("bob"))
    limiter.begin_recovery(HERE, now=START)
    limiter.consume_permit(permit_of(backlog.webhook), now=START)

    assert limiter.get_turn(other, HERE) < limiter.get_turn(backlog.webhook, HERE)
    limiter.consume_permit(permit_of(other), now=START)
    assert limiter.get_turn(backlog.webhook, HERE) < limiter.get_turn(other, HERE)


def test_permits_that_are_not_used_count_neither_for_the_limit_nor_for_the_rate(backlog: Backlog) -> None:
    limiter, permit = backlog.limiter, permit_of(backlog.webhook)
    for second in range(12):
        limiter.consume_permit(permit, now=after(second), count=1_000)
        limiter.refund_permit(permit, 1_000)
    limiter.begin_recovery(HERE, now=after(12))
    backlog.respond(12, count=500)

    limiter.consume_permit(permit, now=after(12), count=50)
    assert backlog.permits(12) == 0
    limiter.refund_permit(permit, 50)
    assert backlog.permits(12) == FLOOR_PER_SECOND


def test_the_dispatcher_learns_when_permits_are_available_again(backlog: Backlog) -> None:
    limiter, permit = backlog.limiter, permit_of(backlog.webhook)
    assert limiter.seconds_until_permit(now=START) is None
    limiter.begin_recovery(HERE, now=START)
    assert limiter.seconds_until_permit(now=START) is None
    backlog.respond(0, count=100)

    limiter.consume_permit(permit, now=START, count=backlog.permits(0))

    assert backlog.permits(0) == 0
    assert limiter.waits_for_rate(permit)
    wait = limiter.seconds_until_permit(now=START)
    assert wait is not None
    assert backlog.permits(wait) > 0
    assert not limiter.waits_for_rate(permit)


def test_a_slow_receiver_is_waited_for_and_not_its_rate(backlog: Backlog) -> None:
    backlog.limiter.begin_recovery(HERE, now=START)

    assert backlog.permits(0, in_flight=1) == 0
    assert not backlog.limiter.waits_for_rate(permit_of(backlog.webhook))


def test_what_is_tracked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_limiter, "TRACKED_ORIGINS_MAX", 2)
    monkeypatch.setattr(origin_rates, "TRACKED_ORIGINS_MAX", 2)
    limiter, rates = BacklogLimiter(), OriginRates()
    backlogs = [Backlog(limiter, make_verified_webhook(), f"https://{number}.example") for number in range(3)]
    for each in backlogs:
        rates.count_callbacks(each.origin, 0.0)
        each.fail(1, since=0)
    for each in backlogs:
        each.recover(2)

    assert len(rates) == 2
    assert [each.permits(2) for each in backlogs] == [MANY, 1, 1], "the oldest outage is forgotten"


# -- rates ------------------------------------------------------------------------------------------------------------------


def count_for(rates: OriginRates, per_second: int, began: int, seconds: int) -> None:
    for second in range(seconds):
        rates.count_callbacks(HERE, began + second, per_second)


def test_the_rate_is_that_of_the_busiest_recent_window() -> None:
    rates = OriginRates()
    count_for(rates, 5, 0, 10)
    count_for(rates, 50, 10, 10)
    count_for(rates, 5, 20, 11)

    assert rates.get_highest(HERE) == pytest.approx(50, rel=0.02)
    assert rates.get_highest(THERE) == 0


def test_a_peak_is_forgotten_with_the_work_after_it_and_not_during_an_idle_night() -> None:
    rates = OriginRates()
    count_for(rates, 100, 0, 10)
    count_for(rates, 1, 8 * 3600, 10)
    assert rates.get_highest(HERE) == pytest.approx(100, rel=0.02)

    count_for(rates, 1, 8 * 3600 + 10, 3600)

    assert rates.get_highest(HERE) < 5


def test_a_clock_that_is_set_back_begins_a_new_window() -> None:
    rates = OriginRates()
    count_for(rates, 10, 3600, 10)
    count_for(rates, 10, 0, 100)

    assert rates.get_highest(HERE) == pytest.approx(10)
