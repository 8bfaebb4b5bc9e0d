"""Webhooks and callbacks have one form, which REST, the `_meta` key and the extension share."""

from dataclasses import fields
from typing import Any

import pytest

from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import CALLBACK_META_KEY
from ringback.domain.webhook import Webhook, WebhookSpec
from ringback.mcp_server.meta import parse_callback
from ringback.schemas.webhook_requests import CallCallbackBody, RegisterWebhookBody
from ringback.schemas.webhooks import WebhookView
from ringback.services.webhooks.registrations import WebhookRegistration

CALLBACK: dict[str, Any] = {
    "url": "https://agent.example/callback",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "events": ["call.finished", "call.progress"],
    "outcomes": ["timed_out", "unknown"],
    "correlation_id": "inbox-3",
    "retries": "minutes",
    "include_result": True,
    "when": "detached",
    "description": "wakes the report agent",
}
REGISTRATION: dict[str, Any] = CALLBACK | {
    "client_session_id": "session-7",
    "match_correlation": True,
    "upstream": "git",
    "resource_uri": "file:///srv/report.md",
    "tool": "git_log",
    "call_id": "call_01KAGZ8A00QW7T3M5N9R1S2V4X",
    "ordered": True,
    "rate_per_second": 2.5,
    "cursor": "MTpldmVudHM6NDI",
    "expires_in_seconds": 3600.0,
}


def test_a_registration_carries_every_member_of_its_request() -> None:
    registration = RegisterWebhookBody.model_validate(REGISTRATION).to_registration()

    members = {field.name: getattr(registration, field.name) for field in fields(WebhookRegistration)}
    sets = {name: frozenset(REGISTRATION[name]) for name in ("events", "outcomes")}
    assert members == REGISTRATION | sets | {"retry_steps": None, "headers": None}


def test_a_registration_with_outcomes_and_without_events_is_for_ends_of_calls_only() -> None:
    body = {"url": "https://agent.example/callback", "outcomes": ["unknown"]}

    assert RegisterWebhookBody.model_validate(body).to_registration().events == {"call.finished"}


def test_the_request_and_the_response_have_every_member_of_a_webhook_spec() -> None:
    names = {field.name for field in fields(WebhookSpec)} - {"retry_steps"}  # `retries` has the steps

    assert names <= set(RegisterWebhookBody.model_fields)
    assert names <= set(WebhookView.model_fields)
    assert names <= {field.name for field in fields(Webhook)}


def test_the_meta_key_reads_a_callback_as_rest_does() -> None:
    assert parse_callback({CALLBACK_META_KEY: CALLBACK}) == CallCallbackBody.model_validate(CALLBACK).to_registration()


@pytest.mark.parametrize("secret", ["", 7])
def test_the_meta_key_refuses_an_invalid_secret_without_showing_it(secret: object) -> None:
    with pytest.raises(InvalidRequest, match=r"_meta\['ringback/callback'\]\.secret: "):
        parse_callback({CALLBACK_META_KEY: CALLBACK | {"secret": secret}})
