"""How long a subscription is granted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.protocol.mcp_events.grants import TtlPolicy, TtlRequest, grant_ttl

POLICY = TtlPolicy(default_seconds=1000, shortest_seconds=100, longest_seconds=5000)


@given(st.floats(0, 1e12, allow_nan=False))
def test_every_number_is_granted_and_at_most_what_was_suggested_above_the_shortest(suggested: float) -> None:
    granted = grant_ttl(suggested, POLICY)

    assert granted is not None
    assert POLICY.shortest_seconds <= granted <= POLICY.longest_seconds
    assert granted <= max(suggested, POLICY.shortest_seconds)


def test_without_a_suggestion_the_default_is_granted() -> None:
    assert grant_ttl(TtlRequest.SERVER_DEFAULT, POLICY) == 1000


@pytest.mark.parametrize(("grants_no_expiry", "granted"), [(True, None), (False, 5000)])
def test_no_expiry_is_granted_only_upon_request_and_if_the_server_offers_it(
    *, grants_no_expiry: bool, granted: float | None
) -> None:
    policy = TtlPolicy(
        default_seconds=1000, shortest_seconds=100, longest_seconds=5000, grants_no_expiry=grants_no_expiry
    )

    assert grant_ttl(TtlRequest.NO_EXPIRY, policy) == granted


def test_a_policy_whose_bounds_contradict_each_other_is_refused() -> None:
    with pytest.raises(ValueError, match="shortest"):
        TtlPolicy(default_seconds=10, shortest_seconds=20)
