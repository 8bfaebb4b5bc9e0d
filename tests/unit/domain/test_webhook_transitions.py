"""What becomes of a webhook by its owner's hand: its secrets, and its state."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.webhook import (
    OWNER_STATE_TRANSITIONS,
    Webhook,
    WebhookSecret,
    WebhookState,
    signing_secrets,
    with_rotated_secret,
    with_state,
)
from tests.support.clock import START
from tests.support.examples import WEBHOOK

DAY = 86400.0
(FIRST,) = signing_secrets(WEBHOOK, now=START)

pytestmark = pytest.mark.requirement("R23")


def rotate(webhook: Webhook, secret: str, *, after_hours: float = 0, overlap_seconds: float = DAY) -> Webhook:
    return with_rotated_secret(
        webhook, secret, now=START + timedelta(hours=after_hours), overlap_seconds=overlap_seconds
    )


def list_valid_secrets(webhook: Webhook, *, after_hours: float) -> tuple[str, ...]:
    return signing_secrets(webhook, now=START + timedelta(hours=after_hours))


def test_the_new_secret_signs_first_and_the_old_ones_until_their_own_ends() -> None:
    twice = rotate(rotate(WEBHOOK, "whsec_b"), "whsec_c", after_hours=6)

    assert list_valid_secrets(twice, after_hours=6) == ("whsec_c", "whsec_b", FIRST)
    assert list_valid_secrets(twice, after_hours=24) == ("whsec_c", "whsec_b")
    assert list_valid_secrets(twice, after_hours=30) == ("whsec_c",)


def test_without_an_overlap_nothing_but_the_new_secret_is_left() -> None:
    leaked = rotate(rotate(WEBHOOK, "whsec_b"), "whsec_c", after_hours=1, overlap_seconds=0)

    assert leaked.secrets == (WebhookSecret(value="whsec_c"),)


def test_a_shorter_overlap_shortens_what_an_earlier_one_promised() -> None:
    hurried = rotate(rotate(WEBHOOK, "whsec_b"), "whsec_c", overlap_seconds=3600)

    assert list_valid_secrets(hurried, after_hours=1) == ("whsec_c",)


def test_a_repeated_rotation_happens_once() -> None:
    once = rotate(WEBHOOK, "whsec_b")

    assert rotate(once, "whsec_b", after_hours=1).secrets == once.secrets


rotations = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 48), st.sampled_from([0, 3600, DAY, 7 * DAY])), max_size=12
)


@given(rotations=rotations)
def test_there_is_always_one_current_secret_and_no_secret_twice(rotations: list[tuple[str, int, float]]) -> None:
    webhook, hours = WEBHOOK, 0
    for name, later, overlap in rotations:
        hours += later
        before = webhook
        webhook = rotate(webhook, name, after_hours=hours, overlap_seconds=overlap)

        values = [secret.value for secret in webhook.secrets]
        assert (values[0], webhook.secrets[0].ends_at) == (name, None)
        assert len(set(values)) == len(values)
        assert set(values) <= {name, *list_valid_secrets(before, after_hours=hours)}
        assert all(secret.ends_at is not None for secret in webhook.secrets[1:])


# -- states ----------------------------------------------------------------------------------------------------------------


def test_no_sequence_of_changes_activates_an_unverified_webhook() -> None:
    reached = {WebhookState.PENDING_VERIFICATION}
    for _ in WebhookState:
        reached |= {to for state in reached for to in OWNER_STATE_TRANSITIONS[state]}

    assert reached == {WebhookState.PENDING_VERIFICATION}


@pytest.mark.parametrize("state", [WebhookState.SUSPENDED, WebhookState.DISABLED])
def test_a_reactivated_webhook_forgets_its_past_failures(state: WebhookState) -> None:
    failing = replace(WEBHOOK, state=state, failing_since=START, last_error="timeout")

    assert with_state(failing, WebhookState.ACTIVE) == WEBHOOK


def test_a_webhook_that_stays_active_keeps_its_failures() -> None:
    failing = replace(WEBHOOK, failing_since=START, last_error="timeout")

    assert with_state(failing, WebhookState.ACTIVE) == failing
