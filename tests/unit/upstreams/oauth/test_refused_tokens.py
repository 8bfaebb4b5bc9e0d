"""What a refused request means: another token, another login, more scopes, or nothing that a login could change."""

import asyncio
from dataclasses import replace

import pytest

from ringback.domain.clock import seconds
from ringback.protocol.errors import LoginRequired, ScopeRefused, TokenReplaced
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.token_validity import REFUSED_AGE_SECONDS
from tests.support.clock import START
from tests.support.scripted_authorization import (
    RESOURCE_METADATA,
    TOKEN,
    TOKEN_DOCUMENT,
    answer_json,
)
from tests.support.token_stage import (
    INVALID_TOKEN,
    LOGGED_IN,
    REFUSED_HANDSHAKE,
    UNAUTHORISED,
    TokenStage,
    explain,
    require_scope,
)

# -- refused requests ----------------------------------------------------------------------------------------------------


async def test_a_refused_request_without_a_token_requires_a_login() -> None:
    stage = TokenStage(None)
    await stage.node.get_token()
    failure = await explain(stage.node, replace(UNAUTHORISED, scope="read write"), None)

    assert isinstance(failure, LoginRequired)
    assert failure.scope == "read write"


async def test_a_refusal_without_a_token_says_to_try_again_if_a_login_was_stored_since_then() -> None:
    stage = TokenStage(None)
    assert await stage.node.get_token() is None
    stage.store.tokens = LOGGED_IN
    stage.node.notify_changed()

    assert isinstance(await explain(stage.node, UNAUTHORISED, None), TokenReplaced)


async def test_a_refusal_of_an_upstream_without_a_login_stands_for_itself() -> None:
    stage = TokenStage(None)
    del stage.servers.answers[RESOURCE_METADATA]
    for _ in range(3):
        assert await explain(stage.node, Refusal(status_code=401), None) is None
    asked = len(stage.servers.requests)
    assert await explain(stage.node, Refusal(status_code=401), None) is None

    assert len(stage.servers.requests) == asked


async def test_a_refusal_without_a_challenge_requires_a_login_if_metadata_offer_one() -> None:
    stage = TokenStage(None)

    assert isinstance(await explain(stage.node, Refusal(status_code=401), None), LoginRequired)


@pytest.mark.parametrize("refusal", [INVALID_TOKEN, REFUSED_HANDSHAKE], ids=["invalid_token", "handshake"])
async def test_a_replaced_token_that_is_refused_too_ends_the_login(refusal: Refusal) -> None:
    stage = TokenStage()
    assert await stage.node.get_token(other_than="access-1") == "access-2"
    failure = await explain(stage.node, refusal, "access-2")

    assert isinstance(failure, LoginRequired)
    with pytest.raises(LoginRequired):
        await stage.node.get_token()
    assert len(stage.servers.list_forms()) == 1


@pytest.mark.parametrize("refusal", [UNAUTHORISED, Refusal(status_code=401)], ids=["a challenge", "none"])
async def test_a_tool_that_answers_401_requires_a_login_for_its_own_calls_only(refusal: Refusal) -> None:
    stage = TokenStage()
    assert await stage.node.get_token(other_than="access-1") == "access-2"
    failure = await explain(stage.node, refusal, "access-2")

    assert isinstance(failure, LoginRequired)
    assert stage.store.tokens is not None
    assert failure.tokens_version == stage.store.tokens.version
    assert await stage.node.get_token() == "access-2"


async def test_a_tool_that_answers_401_causes_one_refresh_a_minute_on_all_nodes() -> None:
    stage = TokenStage(node_count=2)
    stage.clock.advance(REFUSED_AGE_SECONDS)
    for _ in range(10):
        for node in stage.nodes:
            token = await node.get_token()
            token = await node.get_token(other_than=token, refusal=UNAUTHORISED)
            assert isinstance(await explain(node, UNAUTHORISED, token), LoginRequired)

    assert len(stage.servers.list_forms()) == 1
    stage.servers.change_document(TOKEN, TOKEN_DOCUMENT, access_token="access-3")
    stage.clock.advance(REFUSED_AGE_SECONDS)
    assert await stage.node.get_token(other_than="access-2", refusal=UNAUTHORISED) == "access-3"


async def test_a_refused_token_without_a_refresh_token_stays_for_other_calls() -> None:
    stage = TokenStage(replace(LOGGED_IN, refresh_token=None))
    stage.clock.advance(REFUSED_AGE_SECONDS)

    assert await stage.node.get_token(other_than="access-1", refusal=UNAUTHORISED) == "access-1"
    assert isinstance(await explain(stage.node, UNAUTHORISED, "access-1"), LoginRequired)
    assert stage.store.tokens == replace(LOGGED_IN, refresh_token=None)
    with pytest.raises(LoginRequired):
        await stage.node.get_token(other_than="access-1", refusal=INVALID_TOKEN)


@pytest.mark.parametrize("expires_in_seconds", [3600, None], ids=["expires", "has no end"])
async def test_a_refused_token_from_a_time_when_the_clock_was_far_ahead_is_replaced(
    expires_in_seconds: int | None,
) -> None:
    """Its `expires_at` is as far ahead, so nothing else would replace it."""
    obtained_at = START + seconds(30 * 86400)
    expires_at = None if expires_in_seconds is None else obtained_at + seconds(expires_in_seconds)
    stage = TokenStage(replace(LOGGED_IN, obtained_at=obtained_at, expires_at=expires_at))

    assert await stage.node.get_token(other_than="access-1", refusal=UNAUTHORISED) == "access-2"


async def test_a_token_from_a_time_when_the_clock_was_far_ahead_is_replaced_before_it_is_used() -> None:
    obtained_at = START + seconds(30 * 86400)
    stage = TokenStage(replace(LOGGED_IN, obtained_at=obtained_at, expires_at=obtained_at + seconds(3600)))

    assert await stage.node.get_token() == "access-2"


async def test_an_invalid_token_is_replaced_however_young_it_is() -> None:
    stage = TokenStage()

    assert await stage.node.get_token(other_than="access-1", refusal=INVALID_TOKEN) == "access-2"


async def test_a_refused_token_that_was_replaced_meanwhile_ends_no_login() -> None:
    stage = TokenStage()
    assert await stage.node.get_token(other_than="access-1") == "access-2"

    for refusal in (UNAUTHORISED, require_scope("write")):
        assert isinstance(await explain(stage.node, refusal, "access-1"), TokenReplaced)
    assert await stage.node.get_token() == "access-2"


async def test_a_new_token_that_is_refused_before_it_is_saved_is_replaced_too() -> None:
    stage = TokenStage()
    arrived, released = stage.hold_saves()
    stage.servers.answers[TOKEN] = answer_json(TOKEN_DOCUMENT)
    first = asyncio.create_task(stage.node.get_token(other_than="access-1"))
    await arrived.wait()
    assert await stage.node.get_token() == "access-2"
    second = asyncio.create_task(stage.node.get_token(other_than="access-2"))
    await asyncio.sleep(0)
    stage.servers.change_document(TOKEN, TOKEN_DOCUMENT, access_token="access-3")
    released.set()

    assert await second == "access-3"
    await first


async def test_other_refusals_stand_for_themselves() -> None:
    stage = TokenStage()
    await stage.node.get_token()

    assert await explain(stage.node, Refusal(status_code=403, is_bearer=True), "access-1") is None


# -- more scopes ---------------------------------------------------------------------------------------------------------


async def test_a_demand_for_a_scope_requires_a_login_with_the_union_of_scopes() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    failure = await explain(stage.node, require_scope("write admin"), "access-1")

    assert isinstance(failure, LoginRequired)
    assert failure.scope == "tools write admin"
    assert stage.store.tokens is not None
    assert stage.store.tokens.required_scope == "tools write admin"
    assert await stage.node.get_token() == "access-1"


async def test_one_login_meets_the_demands_of_two_tools() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    await explain(stage.node, require_scope("write"), "access-1")
    failure = await explain(stage.node, require_scope("admin"), "access-1")

    assert isinstance(failure, LoginRequired)
    assert failure.scope == "tools write admin"


async def test_the_same_demand_before_the_login_is_the_same_login() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    for _ in range(3):
        assert isinstance(await explain(stage.node, require_scope("write"), "access-1"), LoginRequired)


@pytest.mark.parametrize("scopes", [["write"] * 20, ["write", "admin", "delete"]], ids=["one scope", "three scopes"])
async def test_demands_at_the_same_time_all_require_one_login(scopes: list[str]) -> None:
    stage = TokenStage()
    stage.slow_down_saves()
    await stage.node.get_token()
    failures = await asyncio.gather(*(explain(stage.node, require_scope(scope), "access-1") for scope in scopes))

    assert {type(failure) for failure in failures} == {LoginRequired}
    assert stage.store.tokens is not None
    assert set((stage.store.tokens.required_scope or "").split()) == {"tools", *scopes}


async def test_a_demand_that_the_store_did_not_note_is_not_refused_the_second_time() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.store.failures = 1
    for _ in range(2):
        assert isinstance(await explain(stage.node, require_scope("write"), "access-1"), LoginRequired)

    assert stage.store.tokens is not None
    assert stage.store.tokens.required_scope == "tools write"


async def test_a_demand_for_a_scope_that_the_login_did_not_get_is_refused_the_second_time() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    await explain(stage.node, require_scope("write"), "access-1")
    stage.store.tokens = replace(LOGGED_IN, version=9, access_token="access-9")
    stage.node.notify_changed()
    assert await stage.node.get_token() == "access-9"

    assert isinstance(await explain(stage.node, require_scope("write"), "access-9"), ScopeRefused)


@pytest.mark.parametrize("scope", ["tools", None, "", "x" * 5000, " ".join(f"s{n}" for n in range(101))])
async def test_a_demand_that_no_login_can_meet_is_refused(scope: str | None) -> None:
    stage = TokenStage()
    await stage.node.get_token()

    assert isinstance(await explain(stage.node, require_scope(scope), "access-1"), ScopeRefused)
    assert stage.store.tokens == LOGGED_IN


async def test_demands_that_grow_for_ever_are_refused_at_a_hundred_scopes() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    failures = [await explain(stage.node, require_scope(f"scope-{n}"), "access-1") for n in range(120)]

    assert [type(failure) for failure in failures] == [LoginRequired] * 99 + [ScopeRefused] * 21
    assert stage.store.tokens is not None
    assert len((stage.store.tokens.required_scope or "").split()) == 100


# -- a refresh that brings nothing new ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotated", ["refresh-2", None])
async def test_a_refused_token_that_the_refresh_returns_again_ends_the_login_and_the_refresh_token_is_kept(
    rotated: str | None,
) -> None:
    stage = TokenStage()
    stage.clock.advance(1)
    stage.servers.change_document(TOKEN, TOKEN_DOCUMENT, access_token="access-1", refresh_token=rotated)

    assert await stage.node.get_token(other_than="access-1", refusal=INVALID_TOKEN) == "access-1"
    assert stage.store.tokens is not None
    assert stage.store.tokens.refresh_token == (rotated or "refresh-1")
    assert isinstance(await explain(stage.node, INVALID_TOKEN, "access-1"), LoginRequired)
    with pytest.raises(LoginRequired):
        await stage.node.get_token()
    assert len(stage.servers.list_forms()) == 1


async def test_a_rotated_refresh_token_is_kept_if_the_access_token_is_the_same_and_a_scope_is_noted_meanwhile() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.clock.advance(3590)
    stage.servers.change_document(TOKEN, TOKEN_DOCUMENT, access_token="access-1", refresh_token="refresh-2")
    arrived, released = stage.hold_token_requests()
    refreshing = asyncio.create_task(stage.node.get_token())
    await arrived.wait()
    await explain(stage.node, require_scope("write"), "access-1")
    released.set()
    await refreshing

    stored = stage.store.tokens
    assert stored is not None
    assert (stored.access_token, stored.refresh_token, stored.required_scope) == (
        "access-1",
        "refresh-2",
        "tools write",
    )
    assert stored.expires_at == stage.clock.now() + seconds(3600)


async def test_a_caller_is_notified_before_a_refresh_and_not_if_a_token_is_at_hand() -> None:
    stage = TokenStage()
    requests_before: list[int] = []

    async def on_wait() -> None:
        requests_before.append(len(stage.servers.requests))

    await stage.node.get_token(on_wait=on_wait)
    assert requests_before == []
    stage.clock.advance(3601)
    await stage.node.get_token(on_wait=on_wait)
    assert await stage.node.get_token(other_than="access-1", on_wait=on_wait) == "access-2"
    assert requests_before == [0]


async def test_a_refresh_that_ends_while_a_caller_records_its_wait_is_not_repeated() -> None:
    stage = TokenStage()
    stage.clock.advance(3601)
    arrived, released = stage.hold_token_requests()
    first = asyncio.create_task(stage.node.get_token())
    await arrived.wait()

    async def on_wait() -> None:
        released.set()
        assert await first == "access-2"

    assert await stage.node.get_token(on_wait=on_wait) == "access-2"
    assert (len(stage.servers.list_forms()), stage.store.claims) == (1, 1)
