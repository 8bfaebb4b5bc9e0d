"""Whether stored tokens are used, replaced early, or kept although a request was refused. Pure."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import is_of_wrong_clock
from ringback.domain.upstream_logins import UpstreamTokens
from ringback.upstreams.oauth.challenge import Refusal

EXPIRY_MARGIN_SECONDS: Final = 60.0
EXPIRY_MARGIN_RATIO: Final = 0.1
"""A token is replaced this long before its end, because clocks differ; for a short lifetime, the ratio applies."""
REFUSED_AGE_SECONDS: Final = 60.0
"""Younger tokens are not replaced because one tool answers 401. So such a tool causes one refresh a minute, on all nodes."""


def is_valid(tokens: UpstreamTokens, *, now: datetime) -> bool:
    return tokens.expires_at is None or now < tokens.expires_at


def is_fresh(tokens: UpstreamTokens, *, now: datetime) -> bool:
    if is_of_wrong_clock(tokens.obtained_at, now=now):
        return False  # they end long before their `expires_at`
    if tokens.expires_at is None:
        return True
    lifetime_seconds = (tokens.expires_at - tokens.obtained_at).total_seconds()
    return now < tokens.expires_at - seconds(get_margin_seconds(lifetime_seconds))


def get_margin_seconds(lifetime_seconds: float) -> float:
    return min(EXPIRY_MARGIN_SECONDS, lifetime_seconds * EXPIRY_MARGIN_RATIO)


def keeps_refused(tokens: UpstreamTokens, refusal: Refusal | None, *, now: datetime) -> bool:
    """Whether refused tokens stay, because the refusal may be that of one tool and new tokens would not help."""
    if refusal is None:
        return False
    is_old = is_of_wrong_clock(tokens.obtained_at, now=now) or now - tokens.obtained_at >= seconds(REFUSED_AGE_SECONDS)
    is_replaced = tokens.refresh_token is not None and is_old
    return is_valid(tokens, now=now) and not refusal.rejects_token and not is_replaced


def end_access(tokens: UpstreamTokens) -> UpstreamTokens:
    return replace(tokens, access_token=None)
