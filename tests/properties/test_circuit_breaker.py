"""The breaker: any row of answers and waits keeps its rules."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringback.backoff import JITTER_FRACTION
from ringback.domain.circuit_breaker import (
    CLOSED_BREAKER,
    ORIGIN_BREAKER_POLICY,
    SUSPENDED_BREAKER_POLICY,
    WEBHOOK_BREAKER_POLICY,
    BreakerPolicy,
    CircuitBreaker,
    CircuitState,
    breaker_after_failure,
)
from ringback.domain.retry import RETRY_SCHEDULES
from tests.support.clock import START, FakeClock

POLICIES = [WEBHOOK_BREAKER_POLICY, ORIGIN_BREAKER_POLICY, SUSPENDED_BREAKER_POLICY]
chances = st.floats(0, 1, exclude_max=True)


class CircuitBreakerStates(RuleBasedStateMachine):
    """A receiver that answers or does not, and a sender that asks the breaker first; the model counts in its own words."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.rule: BreakerPolicy = WEBHOOK_BREAKER_POLICY
        self.breaker: CircuitBreaker = CLOSED_BREAKER
        self.failed_in_a_row = 0
        self.pauses: list[float] = []

    @initialize(of=st.sampled_from(POLICIES))
    def choose(self, of: BreakerPolicy) -> None:
        self.rule = of

    @rule(seconds=st.integers(0, 4000))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self._state() is not CircuitState.OPEN)
    @rule()
    def succeed(self) -> None:
        self.breaker, self.failed_in_a_row, self.pauses = CLOSED_BREAKER, 0, []

    @rule(chance=chances)
    def fail(self, chance: float) -> None:
        """Also while it is open: an attempt may have been out when it opened."""
        before, now = self.breaker, self.clock.now()
        self.breaker = breaker_after_failure(before, self.rule, now=now, random_fraction=chance)
        self.failed_in_a_row += 1
        if before.state(now) is CircuitState.OPEN:
            assert self.breaker.paused_until == before.paused_until
        elif self.breaker.paused_until is not None:
            self.pauses.append((self.breaker.paused_until - now).total_seconds())

    @invariant()
    def the_breaker_opens_at_its_failure_limit(self) -> None:
        opened = self.breaker.paused_until is not None
        assert opened == (self.failed_in_a_row >= self.rule.failures_to_open)
        assert self.breaker.failures == self.failed_in_a_row

    @invariant()
    def each_pause_is_the_next_step_within_the_jitter(self) -> None:
        steps = [*self.rule.open_seconds_steps, *[self.rule.open_seconds_steps[-1]] * len(self.pauses)]
        for pause, step in zip(self.pauses, steps, strict=False):
            assert step * (1 - JITTER_FRACTION) - 0.001 <= pause <= step * (1 + JITTER_FRACTION) + 0.001

    def _state(self) -> CircuitState:
        return self.breaker.state(self.clock.now())


TestBreakerLife = pytest.mark.requirement("R27")(CircuitBreakerStates.TestCase)


@pytest.mark.parametrize("profile", RETRY_SCHEDULES)
@given(chance=chances)
def test_a_lone_delivery_is_never_delayed_by_a_pause_beyond_its_schedule(profile: str, chance: float) -> None:
    """Every failure of it comes at its own step; the pause that begins then is over before the next."""
    breaker, now = CLOSED_BREAKER, START
    for step in RETRY_SCHEDULES[profile].delays_seconds:  # pyright: ignore[reportArgumentType] - keys of the same table
        breaker = breaker_after_failure(breaker, WEBHOOK_BREAKER_POLICY, now=now, random_fraction=chance)
        now += timedelta(seconds=step * (1 - JITTER_FRACTION))
        assert breaker.state(now) is not CircuitState.OPEN
