from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.event import EventName
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.webhook import (
    DEFAULT_EVENTS,
    WebhookOrigin,
    WebhookSecret,
    WebhookState,
    matches_event,
    signing_secrets,
)
from ringback.domain.webhook_text import describe_webhook
from tests.support.clock import START
from tests.support.examples import EVENT, WEBHOOK

HOUR = timedelta(hours=1)


def test_a_webhook_without_filters_gets_events_that_require_attention() -> None:
    matched = {name for name in EventName if matches_event(WEBHOOK, replace(EVENT, name=name), now=START)}
    assert matched == DEFAULT_EVENTS == {EventName.CALL_FINISHED, EventName.CALL_INPUT_REQUIRED}


def test_a_webhook_matches_until_it_expires() -> None:
    expiring = replace(WEBHOOK, expires_at=START + HOUR)
    assert matches_event(expiring, EVENT, now=START + HOUR - timedelta(milliseconds=1))
    assert not matches_event(expiring, EVENT, now=START + HOUR)


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        (WebhookState.ACTIVE, False),
        (WebhookState.PENDING_VERIFICATION, True),
        (WebhookState.SUSPENDED, True),
        (WebhookState.DISABLED, False),
    ],
)
def test_an_unverified_or_suspended_webhook_holds_its_deliveries(state: WebhookState, *, holds: bool) -> None:
    assert replace(WEBHOOK, state=state).holds_deliveries() is holds


@pytest.mark.requirement("R23")
def test_a_replaced_secret_signs_until_its_end() -> None:
    rotated = replace(
        WEBHOOK, secrets=(WebhookSecret(value="whsec_new"), WebhookSecret(value="whsec_old", ends_at=START + HOUR))
    )
    assert signing_secrets(rotated, now=START) == ("whsec_new", "whsec_old")
    assert signing_secrets(rotated, now=START + HOUR) == ("whsec_new",)


def test_a_webhook_never_prints_its_secrets() -> None:
    assert "whsec_" not in repr(WEBHOOK)
    assert "whsec_" not in repr(WEBHOOK.secrets[0])


def test_a_webhook_describes_its_events() -> None:
    assert (
        describe_webhook(WEBHOOK) == "Receives call.finished, call.input_required of every call of yours, from now on."
    )


def test_events_that_belong_to_no_call_are_described_without_calls() -> None:
    external = replace(WEBHOOK, events=frozenset({"order.paid"}))
    both = replace(external, events=frozenset({"order.paid", "call.finished"}), client_session_id="s1")

    assert describe_webhook(external) == "Receives order.paid, from now on."
    assert describe_webhook(both) == (
        "Receives call.finished of your calls with client_session_id 's1', from now on. "
        "Receives order.paid with client_session_id 's1', from now on."
    )


def test_events_about_webhooks_are_described_as_such() -> None:
    watching = replace(WEBHOOK, events=frozenset({EventName.WEBHOOK_FAILING, EventName.CALL_FINISHED}))

    assert describe_webhook(watching) == (
        "Receives call.finished of every call of yours, from now on. "
        "Receives webhook.failing about your other webhooks, from now on."
    )
    assert "Receives no webhook.failing" in describe_webhook(replace(watching, upstream="git"))


def test_the_description_has_its_filters_and_not_its_labels() -> None:
    finished = frozenset({EventName.CALL_FINISHED})
    filtered = replace(WEBHOOK, events=finished, upstream="git", tool="git_log", correlation_id="report-1")
    matching = replace(filtered, upstream=None, tool=None, match_correlation=True)

    assert describe_webhook(filtered) == (
        "Receives call.finished of your calls with upstream 'git' and tool 'git_log', from now on."
    )
    assert (
        describe_webhook(matching)
        == "Receives call.finished of your calls with correlation_id 'report-1', from now on."
    )


def test_a_webhook_of_one_call_gets_its_events_from_the_first() -> None:
    of_one = replace(WEBHOOK, call_id=CallId("call_1"))
    assert describe_webhook(of_one) == (
        "Receives call.finished, call.input_required of the call call_1, from its beginning."
    )


def test_the_callback_of_a_session_gets_only_the_calls_that_name_it() -> None:
    callback = replace(WEBHOOK, origin=WebhookOrigin.CALL, client_session_id="s1")

    assert describe_webhook(callback) == (
        "Receives call.finished, call.input_required of those of your calls that name this callback."
    )
    assert "those calls of alice that" in describe_webhook(callback, reader=Principal("operator"))


def test_a_disabled_webhook_describes_that_it_gets_nothing() -> None:
    assert (
        describe_webhook(replace(WEBHOOK, state=WebhookState.DISABLED)) == "Receives nothing: the webhook is disabled."
    )
