"""Several nodes share the tokens of an owner: a refresh token is used once, and no node overwrites what another one stored."""

import asyncio
from dataclasses import replace

import pytest

from ringback.domain.clock import seconds
from ringback.domain.ids import LoginId
from ringback.protocol.errors import LoginRequired
from tests.support.clock import START
from tests.support.scripted_authorization import (
    REVOKE,
    TOKEN,
)
from tests.support.token_stage import (
    INVALID_TOKEN,
    LOGGED_IN,
    TokenStage,
    explain,
    fail_to_connect,
    require_scope,
)

# -- several nodes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [None, "access-1"])
async def test_two_nodes_use_a_refresh_token_once(refused: str | None) -> None:
    stage = TokenStage(node_count=2)
    stage.clock.advance(3601 if refused is None else 0)
    tokens = await asyncio.gather(*(node.get_token(other_than=refused) for node in stage.nodes * 3))

    assert set(tokens) == {"access-2"}
    assert len(stage.servers.list_forms()) == 1


async def test_a_node_takes_over_a_refresh_whose_node_died() -> None:
    claimed_until = START + seconds(3601 + 15)
    stage = TokenStage(replace(LOGGED_IN, version=2, refresh_claimed_until=claimed_until))
    stage.clock.advance(3601)

    assert await stage.node.get_token() == "access-2"
    assert stage.clock.now() >= claimed_until


async def test_a_valid_token_is_used_while_another_node_refreshes_it() -> None:
    stage = TokenStage(replace(LOGGED_IN, refresh_claimed_until=START + seconds(3590)))
    stage.clock.advance(3600 - 30)

    assert await stage.node.get_token() == "access-1"
    assert stage.servers.requests == []


async def begin_refresh(stage: TokenStage, *, after_seconds: float) -> tuple[asyncio.Task[str | None], asyncio.Event]:
    """A refresh whose request has arrived at the authorization server, and what lets the server answer it."""
    stage.clock.advance(after_seconds)
    arrived, released = stage.hold_token_requests()
    refresh = asyncio.create_task(stage.node.get_token())
    await arrived.wait()
    return refresh, released


async def test_a_login_during_a_refresh_wins() -> None:
    stage = TokenStage()
    first, released = await begin_refresh(stage, after_seconds=3601)
    stage.store.tokens = replace(LOGGED_IN, version=9, access_token="access-of-the-login", expires_at=None)
    released.set()

    assert await first == "access-of-the-login"
    assert stage.store.tokens.version == 9


async def test_a_logout_during_a_refresh_wins() -> None:
    stage = TokenStage()
    first, released = await begin_refresh(stage, after_seconds=3601)
    stage.store.tokens = None
    released.set()

    with pytest.raises(LoginRequired):
        await first


@pytest.mark.parametrize("node_number", [0, 1], ids=["the node that refreshes", "another node"])
async def test_a_demand_for_a_scope_during_a_refresh_loses_no_rotated_refresh_token(node_number: int) -> None:
    stage = TokenStage(node_count=2)
    for node in stage.nodes:
        await node.get_token()
    refresh, released = await begin_refresh(stage, after_seconds=3600 - 30)
    failure = await explain(stage.nodes[node_number], require_scope("write"), "access-1")
    released.set()

    assert await refresh == "access-2"
    assert isinstance(failure, LoginRequired)
    stored = stage.store.tokens
    assert stored is not None
    assert (stored.access_token, stored.refresh_token) == ("access-2", "refresh-2")
    assert (stored.required_scope, stored.refresh_claimed_until) == ("tools write", None)


async def test_a_token_that_is_refused_while_its_refresh_runs_is_replaced() -> None:
    stage = TokenStage()
    refresh, released = await begin_refresh(stage, after_seconds=3600 - 30)
    await explain(stage.node, INVALID_TOKEN, "access-1")
    released.set()
    await refresh

    assert await stage.node.get_token() == "access-2"
    assert stage.store.tokens is not None
    assert stage.store.tokens.refresh_token == "refresh-2"


async def test_a_token_that_is_refused_while_its_refresh_fails_is_not_used_again() -> None:
    stage = TokenStage()
    stage.servers.answers[TOKEN] = fail_to_connect
    refresh, released = await begin_refresh(stage, after_seconds=3600 - 30)
    await explain(stage.node, INVALID_TOKEN, "access-1")
    released.set()
    await asyncio.gather(refresh, return_exceptions=True)

    assert stage.store.tokens is not None
    assert (stage.store.tokens.access_token, stage.store.tokens.refresh_claimed_until) == (None, None)


async def test_new_tokens_are_saved_although_the_store_fails_for_a_moment() -> None:
    stage = TokenStage()
    first, released = await begin_refresh(stage, after_seconds=3601)
    stage.store.failures = 2
    released.set()

    assert await first == "access-2"
    assert stage.store.tokens is not None
    assert stage.store.tokens.refresh_token == "refresh-2"


async def test_new_tokens_are_revoked_if_their_login_has_ended_during_the_refresh() -> None:
    """The end of the login revoked the tokens that it found, and the refresh token of these was used up by then."""
    stage = TokenStage()
    refresh, released = await begin_refresh(stage, after_seconds=3601)
    stage.store.tokens = None
    released.set()
    with pytest.raises(LoginRequired):
        await refresh

    assert [form["token"] for form in stage.servers.list_forms(REVOKE)] == ["refresh-2", "access-2"]


async def test_new_tokens_are_not_revoked_if_another_login_has_come_during_the_refresh() -> None:
    """An authorization server may keep one grant for a user and a client."""
    stage = TokenStage()
    refresh, released = await begin_refresh(stage, after_seconds=3601)
    stage.store.tokens = replace(LOGGED_IN, version=9, login_id=LoginId("login_2"), access_token="access-9")
    released.set()
    await asyncio.gather(refresh, return_exceptions=True)

    assert stage.servers.list_forms(REVOKE) == []
