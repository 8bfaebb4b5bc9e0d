"""Whether an owner is signed in, as lists of upstreams show it."""

from datetime import timedelta

import pytest

from ringback.domain.upstream_logins import SHARED_OWNER, UnreadableTokens
from ringback.services.logins.login_states import LoginStatus, judge_login
from tests.support.clock import START
from tests.support.logins import make_tokens

LATER = START + timedelta(hours=1)


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({}, LoginStatus.SIGNED_IN),
        ({"expires_at": LATER}, LoginStatus.SIGNED_IN),
        ({"expires_at": START}, LoginStatus.EXPIRED),
        ({"expires_at": START, "refresh_token": "refresh"}, LoginStatus.SIGNED_IN),
        ({"access_token": None, "refresh_token": "refresh"}, LoginStatus.EXPIRED),
        ({"scope": "read", "required_scope": "read write"}, LoginStatus.REQUIRED),
        ({"scope": "write read", "required_scope": "read write"}, LoginStatus.SIGNED_IN),
        ({"scope": None, "required_scope": "read"}, LoginStatus.REQUIRED),
        ({"access_token": None, "required_scope": "read"}, LoginStatus.EXPIRED),
    ],
)
def test_the_state_of_a_login_follows_from_its_tokens(over: dict[str, object], expected: LoginStatus) -> None:
    assert judge_login(make_tokens(**over), is_requested=False, now=START) is expected


def test_a_login_that_this_node_cannot_read_is_neither_missing_nor_ended() -> None:
    tokens = UnreadableTokens(
        upstream="git", owner=SHARED_OWNER, version=1, resource="https://mcp.example/mcp", scope=None, expires_at=START
    )
    assert judge_login(tokens, is_requested=True, now=START) is LoginStatus.UNREADABLE


@pytest.mark.parametrize(("is_requested", "expected"), [(False, LoginStatus.NONE), (True, LoginStatus.REQUIRED)])
def test_without_tokens_a_login_is_required_once_the_upstream_asks_for_one(
    *, is_requested: bool, expected: LoginStatus
) -> None:
    assert judge_login(None, is_requested=is_requested, now=START) is expected
