"""Any life of a delivery: held, released, tried, lost and tried again, until it arrived or was given up."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import (
    DELIVERY_TRANSITIONS,
    OPEN_STATES,
    AttemptResult,
    Delivery,
    DeliveryState,
    category_for_status_code,
    decide_retry,
)
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile
from tests.support.clock import FakeClock
from tests.support.examples import DELIVERY

MODEL_TRANSITIONS: Final = {
    "held": {"pending", "dead", "cancelled"},
    "pending": {"held", "leased", "dead", "cancelled"},
    "leased": {"delivered", "pending", "dead", "cancelled"},
    "delivered": set[str](),
    "dead": set[str](),
    "cancelled": set[str](),
}

answers = st.one_of(
    st.integers(200, 599).flatmap(
        lambda code: st.builds(
            AttemptResult,
            category=st.just(category_for_status_code(code)),
            status_code=st.just(code),
            retry_after_seconds=st.none() | st.floats(0, 1e10),
        )
    ),
    st.sampled_from([AttemptCategory.CONNECTION_REFUSED, AttemptCategory.TIMEOUT, AttemptCategory.TLS_ERROR]).map(
        lambda category: AttemptResult(category=category)
    ),
)
chances = st.floats(0, 1, exclude_max=True)


class DeliveryStates(RuleBasedStateMachine):
    """Plays dispatcher, janitor and owner; every step must be one that the table allows, and the ladder must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.profile = RetryProfile.DAYS
        self.delivery: Delivery = DELIVERY
        self.answered = 0

    @initialize(profile=st.sampled_from(RetryProfile), held=st.booleans())
    def create_delivery(self, profile: RetryProfile, held: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        self.profile = profile
        self.delivery = replace(
            DELIVERY,
            state=DeliveryState.HELD if held else DeliveryState.PENDING,
            give_up_at=self.clock.now() + timedelta(seconds=RETRY_SCHEDULES[profile].give_up_seconds),
        )

    @rule(later=st.integers(0, 2 * 86400))
    def let_time_pass(self, later: int) -> None:
        self.clock.advance(later)

    @precondition(lambda self: self.delivery.state is DeliveryState.HELD)
    @rule()
    def release(self) -> None:
        self._become(DeliveryState.PENDING)

    @precondition(lambda self: self.delivery.state is DeliveryState.PENDING)
    @rule()
    def hold_while_its_new_url_is_proven(self) -> None:
        self._become(DeliveryState.HELD)

    @precondition(lambda self: self.delivery.state is DeliveryState.PENDING)
    @rule()
    def lease_when_due(self) -> None:
        self.clock.advance((self.delivery.due_at - self.clock.now()).total_seconds())
        self._become(DeliveryState.LEASED)
        self.delivery = replace(self.delivery, attempts=self.delivery.attempts + 1)

    @precondition(lambda self: self.delivery.state is DeliveryState.LEASED)
    @rule(answer=answers, chance=chances)
    def record_response(self, answer: AttemptResult, chance: float) -> None:
        now = self.clock.now()
        verdict = decide_retry(
            self.delivery,
            answer,
            schedule=RETRY_SCHEDULES[self.profile],
            now=now,
            confirmed_now=now,
            random_fraction=chance,
        )
        self.answered += 1

        assert (verdict.state is DeliveryState.DELIVERED) == (answer.status_code in range(200, 300))
        assert (verdict.due_at is not None) == (verdict.state is DeliveryState.PENDING)
        if verdict.due_at is not None:
            assert now < verdict.due_at <= self.delivery.give_up_at
            self.delivery = replace(self.delivery, due_at=verdict.due_at)
        self._become(verdict.state)

    @precondition(lambda self: self.delivery.state is DeliveryState.LEASED)
    @rule()
    def expire_lease(self) -> None:
        self._become(DeliveryState.PENDING)

    @precondition(lambda self: self.delivery.state in OPEN_STATES)
    @rule()
    def remove_webhook(self) -> None:
        self._become(DeliveryState.CANCELLED)

    @invariant()
    def the_table_is_the_models(self) -> None:
        assert {str(new) for new in DELIVERY_TRANSITIONS[self.delivery.state]} == MODEL_TRANSITIONS[self.delivery.state]
        assert (self.delivery.state in OPEN_STATES) == bool(MODEL_TRANSITIONS[self.delivery.state])

    @invariant()
    def there_are_no_more_answers_than_the_ladder_has_steps_and_one(self) -> None:
        assert self.answered <= len(RETRY_SCHEDULES[self.profile].delays_seconds) + 1

    def _become(self, state: DeliveryState) -> None:
        assert state in DELIVERY_TRANSITIONS[self.delivery.state]
        self.delivery = replace(self.delivery, state=state)


TestDeliveryLife = pytest.mark.requirement("R27")(DeliveryStates.TestCase)
