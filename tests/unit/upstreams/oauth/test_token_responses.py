"""What is read of a token response, whatever a server writes."""

from typing import Any

import pytest

from ringback.upstreams.oauth.token_responses import LIFETIME_SECONDS_MAX, parse_lifetime

HUGE = 10**400
CASES: list[tuple[Any, float | None]] = [
    (3600, 3600.0),
    ("3600", 3600.0),
    (0.5, 0.5),
    *((unusable, None) for unusable in (0, "0", -1, "-1", -HUGE, "nan", "soon", "", True, None)),
    *((huge, LIFETIME_SECONDS_MAX) for huge in (HUGE, str(HUGE), 1e308, float("inf"))),
]


@pytest.mark.parametrize(("expires_in", "lifetime"), CASES, ids=lambda value: repr(value)[:12])
def test_a_lifetime_is_positive_and_within_the_calendar_or_unknown(expires_in: Any, lifetime: float | None) -> None:
    assert parse_lifetime(expires_in) == lifetime
