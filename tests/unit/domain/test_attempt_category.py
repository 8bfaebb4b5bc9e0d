"""The closed set of categories: each failure has advice, and one of the six reasons that leave the service."""

import pytest

from ringback.domain.attempt_category import (
    ADVICE,
    OWN_FAILURES,
    RESPONDED_CATEGORIES,
    UNREACHABLE_CATEGORIES,
    WIRE_REASONS,
    AttemptCategory,
    category_advice,
    wire_reason,
)

SPECIFIED_REASONS = {"connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"}
"""mcp-events §7, CallbackEndpointError."""
FAILURES = set(AttemptCategory) - {AttemptCategory.DELIVERED}


def test_every_failure_has_advice_of_one_sentence() -> None:
    assert set(ADVICE) == FAILURES
    for advice in ADVICE.values():
        assert advice.endswith(".")
        assert ". " not in advice
    assert "full name: search domains are not used" in (category_advice("name_not_found") or "")
    assert category_advice("delivered") is None
    assert category_advice("no category") is None


def test_every_failure_leaves_the_service_as_a_reason_of_the_specification() -> None:
    assert set(WIRE_REASONS) == FAILURES
    assert set(WIRE_REASONS.values()) == SPECIFIED_REASONS


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("blocked_address", "connection_refused"),
        ("certificate_expired", "tls_error"),
        ("response_timeout", "timeout"),
        ("http_3xx", "http_4xx"),
        ("secrets_unreadable", "secrets_unreadable"),
    ],
)
def test_a_reason_says_nothing_about_networks(error: str, reason: str) -> None:
    assert wire_reason(error) == reason


def test_each_failure_is_ours_or_a_response_or_none() -> None:
    assert OWN_FAILURES | RESPONDED_CATEGORIES | UNREACHABLE_CATEGORIES | {AttemptCategory.UNREADABLE} == set(
        AttemptCategory
    )
    assert not UNREACHABLE_CATEGORIES & (OWN_FAILURES | RESPONDED_CATEGORIES)
