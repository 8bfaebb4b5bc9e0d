"""The tokens of an owner are refreshed once for all requests, and never sent where they do not belong."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import httpx2
import pytest

from ringback.domain.clock import seconds
from ringback.domain.ids import LoginId
from ringback.domain.upstream_logins import OAuthClient, RegisteredClient, UnreadableTokens
from ringback.protocol.errors import LoginRequired, TokensUnreadable, TokenUnavailable
from ringback.upstreams.oauth.stored_tokens import (
    CACHE_SECONDS,
    RETRY_SECONDS,
)
from tests.support.clock import START
from tests.support.scripted_authorization import (
    REDIRECT,
    TOKEN,
    TOKEN_DOCUMENT,
    UPSTREAM,
    answer_json,
)
from tests.support.token_stage import (
    LOGGED_IN,
    UNAUTHORISED,
    TokenStage,
    explain,
    fail_to_connect,
    require_scope,
)

# -- tokens for requests -------------------------------------------------------------------------------------------------


async def test_a_request_has_no_token_until_a_login() -> None:
    stage = TokenStage(None)

    assert await stage.node.get_token() is None
    assert stage.servers.requests == []


async def test_a_fresh_token_is_read_once() -> None:
    stage = TokenStage()

    assert {await stage.node.get_token() for _ in range(5)} == {"access-1"}
    assert stage.store.reads == 1


async def test_tokens_are_read_again_after_a_notification_and_after_half_a_minute() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.store.tokens = replace(LOGGED_IN, version=2, access_token="access-of-another-node")
    assert await stage.node.get_token() == "access-1"

    stage.node.notify_changed()
    assert await stage.node.get_token() == "access-of-another-node"
    stage.store.tokens = None
    stage.clock.advance(CACHE_SECONDS)
    with pytest.raises(LoginRequired):
        await stage.node.get_token()


# -- tokens that only other nodes can read --------------------------------------------------------------------------------

UNREADABLE = UnreadableTokens(
    upstream=LOGGED_IN.upstream,
    owner=LOGGED_IN.owner,
    version=LOGGED_IN.version,
    resource=LOGGED_IN.resource,
    scope=LOGGED_IN.scope,
    expires_at=LOGGED_IN.expires_at,
)


async def test_a_login_whose_key_is_missing_here_is_no_missing_login() -> None:
    stage = TokenStage(None)
    await stage.node.get_token()
    stage.store.unreadable = UNREADABLE
    stage.node.notify_changed()

    with pytest.raises(TokensUnreadable) as raised:
        await stage.node.get_token()
    assert (raised.value.tokens_version, await stage.node.read_version()) == (UNREADABLE.version, UNREADABLE.version)
    with pytest.raises(TokensUnreadable):  # a request that was sent before the login
        await explain(stage.node, UNAUTHORISED, None)
    await stage.node.check_login()
    assert (stage.node.login.has_ended, stage.store.claims, stage.servers.requests) == (True, 0, [])


async def test_the_connection_that_found_a_login_unreadable_uses_it_once_it_can_be_read() -> None:
    stage = TokenStage(None)
    stage.store.unreadable = UNREADABLE
    with pytest.raises(TokensUnreadable):
        await stage.node.get_token()
    assert not stage.node.login.has_ended

    stage.store.tokens, stage.store.unreadable = LOGGED_IN, None
    stage.node.notify_changed()
    assert await stage.node.get_token() == "access-1"


async def test_tokens_of_another_url_that_cannot_be_read_are_no_login_here() -> None:
    stage = TokenStage(None)
    stage.store.unreadable = replace(UNREADABLE, resource="https://elsewhere.example/mcp")

    assert await stage.node.get_token() is None


async def test_tokens_that_another_node_has_sealed_anew_are_used_until_they_are_replaced() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.store.unreadable = UNREADABLE
    stage.node.notify_changed()
    assert await stage.node.get_token() == "access-1"

    stage.store.unreadable = replace(UNREADABLE, version=UNREADABLE.version + 1)
    stage.node.notify_changed()
    with pytest.raises(TokensUnreadable):
        await stage.node.get_token()


async def test_a_refresh_that_finds_tokens_of_another_node_that_cannot_be_read_leaves_them() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.clock.advance(3601)
    stage.store.unreadable = replace(UNREADABLE, version=UNREADABLE.version + 1)

    with pytest.raises(TokensUnreadable):
        await stage.node.get_token()
    assert (stage.store.tokens, stage.servers.requests) == (LOGGED_IN, [])


# -- another login -------------------------------------------------------------------------------------------------------


async def test_a_source_keeps_to_its_login_until_its_token_ends_and_then_asks_for_the_next_one() -> None:
    """A session belongs to an account. The call whose request fails goes on in the session of the next login."""
    stage = TokenStage()
    await stage.node.get_token()
    stage.store.tokens = replace(LOGGED_IN, version=7, login_id=LoginId("login_2"), access_token="of-another-account")
    stage.node.notify_changed()

    assert await stage.node.get_token() == "access-1"
    with pytest.raises(LoginRequired) as raised:
        await stage.node.get_token(other_than="access-1")
    assert raised.value.tokens_version == LOGGED_IN.version
    stage.clock.advance(3601)
    with pytest.raises(LoginRequired):
        await stage.node.get_token()
    assert stage.servers.requests == []


async def test_a_login_in_the_middle_of_a_refresh_ends_the_refreshed_one() -> None:
    stage = TokenStage()
    stage.clock.advance(3601)
    arrived, released = stage.hold_token_requests()
    first = asyncio.create_task(stage.node.get_token())
    await arrived.wait()
    stage.store.tokens = another = replace(LOGGED_IN, version=7, login_id=LoginId("login_2"))
    released.set()

    assert await first == "access-2"
    assert (stage.node.login.has_ended, stage.store.tokens) == (True, another)


async def test_a_first_login_and_a_refresh_do_not_end_the_login_but_an_erasure_does() -> None:
    stage = TokenStage(None)
    changes: list[bool] = []

    def note_change(*, has_ended: bool) -> None:
        changes.append(has_ended)

    stage.node.login.on_change = note_change
    await stage.node.check_login()
    for tokens in (LOGGED_IN, replace(LOGGED_IN, version=2, access_token="access-2")):
        stage.store.tokens = tokens
        stage.node.notify_changed()
        await stage.node.check_login()
    assert (changes, await stage.node.get_token()) == ([False], "access-2")

    stage.node.end_login()
    with pytest.raises(LoginRequired):
        await stage.node.get_token()
    assert changes == [False, True]


async def test_tokens_of_another_url_are_not_sent() -> None:
    stage = TokenStage()

    assert await stage.make_node(url="https://elsewhere.example/mcp").get_token() is None
    assert await stage.make_node(url="https://mcp.example/other").get_token() is None


@pytest.mark.parametrize("count", [1, 50])
async def test_all_requests_share_one_refresh_of_an_expired_token(count: int) -> None:
    stage = TokenStage()
    stage.clock.advance(3601)
    tokens = await asyncio.gather(*(stage.node.get_token() for _ in range(count)))

    assert set(tokens) == {"access-2"}
    assert stage.servers.list_forms() == [
        {
            "grant_type": "refresh_token",
            "refresh_token": "refresh-1",
            "resource": UPSTREAM,
            "client_id": "ringback",
        }
    ]
    stored = stage.store.tokens
    assert stored is not None
    assert (stored.access_token, stored.refresh_token, stored.scope) == ("access-2", "refresh-2", "tools")
    assert stored.refresh_claimed_until is None
    assert stored.expires_at == stage.clock.now() + seconds(3600)


async def test_a_response_without_a_refresh_token_keeps_the_old_one() -> None:
    stage = TokenStage()
    stage.servers.change_document(TOKEN, TOKEN_DOCUMENT, refresh_token=None)
    stage.clock.advance(3601)
    await stage.node.get_token()

    assert stage.store.tokens is not None
    assert stage.store.tokens.refresh_token == "refresh-1"


async def test_a_token_that_the_upstream_refuses_is_replaced_before_its_expiry() -> None:
    stage = TokenStage()

    assert await stage.node.get_token(other_than="access-1") == "access-2"
    assert await stage.node.get_token(other_than="access-1") == "access-2"
    assert len(stage.servers.list_forms()) == 1


async def test_requests_use_the_old_token_while_it_is_valid_and_its_refresh_runs() -> None:
    stage = TokenStage()
    stage.clock.advance(3600 - 30)
    arrived, released = stage.hold_token_requests()
    first = asyncio.create_task(stage.node.get_token())
    await arrived.wait()

    assert await stage.node.get_token() == "access-1"
    released.set()
    assert await first == "access-2"


async def test_a_cancelled_request_loses_no_refresh() -> None:
    stage = TokenStage()
    stage.clock.advance(3601)
    arrived, released = stage.hold_token_requests()
    first = asyncio.create_task(stage.node.get_token())
    await arrived.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    released.set()

    assert await stage.node.get_token() == "access-2"
    assert len(stage.servers.list_forms()) == 1


async def test_the_end_of_the_service_waits_for_a_refresh() -> None:
    stage = TokenStage()
    stage.clock.advance(3601)
    arrived, released = stage.hold_token_requests()
    first = asyncio.create_task(stage.node.get_token())
    await arrived.wait()
    closing = asyncio.create_task(stage.node.aclose())
    released.set()
    await closing

    assert stage.store.tokens is not None
    assert stage.store.tokens.access_token == "access-2"
    await first


# -- failures of a refresh -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "invalid_grant"),
        (400, "interaction_required"),  # Microsoft Entra ID: the user has to sign in again
        (400, "consent_required"),
        (400, "login_required"),
        (200, "bad_refresh_token"),  # GitHub refuses with 200
    ],
)
async def test_a_refused_refresh_requires_a_login_and_is_not_repeated(status: int, code: str) -> None:
    stage = TokenStage(replace(LOGGED_IN, required_scope="tools write"), node_count=2)
    stage.servers.answers[TOKEN] = answer_json({"error": code}, status)
    stage.clock.advance(3601)
    for node in stage.nodes * 2:
        with pytest.raises(LoginRequired) as raised:
            await node.get_token()
        assert raised.value.scope == "tools write"

    assert len(stage.servers.list_forms()) == 1
    assert stage.store.tokens is not None
    assert stage.store.tokens.access_token is None


async def test_a_client_that_the_server_does_not_know_any_more_is_forgotten() -> None:
    client = OAuthClient(client_id="client-1", redirect_uri=REDIRECT)
    stage = TokenStage(replace(LOGGED_IN, client=client))
    await stage.clients.save(
        RegisteredClient(
            issuer=LOGGED_IN.issuer, redirect_uri=REDIRECT, client=client, created_at=START, expires_at=None
        )
    )
    stage.servers.answers[TOKEN] = answer_json({"error": "invalid_client"}, 401)
    stage.clock.advance(3601)
    with pytest.raises(LoginRequired):
        await stage.node.get_token()

    assert stage.clients.stored == {}


async def test_an_expired_token_without_a_refresh_token_requires_a_login() -> None:
    stage = TokenStage(replace(LOGGED_IN, refresh_token=None))
    stage.clock.advance(3600 - 30)
    assert await stage.node.get_token() == "access-1"

    stage.clock.advance(31)
    with pytest.raises(LoginRequired):
        await stage.node.get_token()


@pytest.mark.parametrize(
    "answer",
    [fail_to_connect, answer_json({}, 503), answer_json({}), answer_json({"error": "odd"}, 400)],
    ids=["unreachable", "a crash", "no token", "an unknown error"],
)
async def test_a_temporary_failure_keeps_the_old_token_while_it_is_valid(
    answer: Callable[[httpx2.Request], httpx2.Response],
) -> None:
    stage = TokenStage()
    stage.servers.answers[TOKEN] = answer
    stage.clock.advance(3600 - 30)
    assert {await stage.node.get_token() for _ in range(3)} == {"access-1"}
    assert len(stage.servers.list_forms()) == 1

    stage.clock.advance(31)
    with pytest.raises(TokenUnavailable):
        await stage.node.get_token()
    stage.servers.answers[TOKEN] = answer_json(TOKEN_DOCUMENT)
    stage.clock.advance(RETRY_SECONDS)
    assert await stage.node.get_token() == "access-2"


async def test_an_authorization_server_that_fails_is_asked_once_in_five_seconds() -> None:
    stage = TokenStage()
    stage.servers.answers[TOKEN] = fail_to_connect
    stage.clock.advance(3601)
    for _ in range(10):
        with pytest.raises(TokenUnavailable):
            await stage.node.get_token()

    assert len(stage.servers.list_forms()) == 1


# -- secrets -------------------------------------------------------------------------------------------------------------


async def test_no_log_and_no_error_has_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stage = TokenStage()
    stage.servers.answers[TOKEN] = answer_json({"error": "invalid_grant", "error_description": "refresh-1"}, 400)
    stage.clock.advance(3601)
    with pytest.raises(LoginRequired) as raised:
        await stage.node.get_token()

    shown = f"{raised.value!r} {caplog.text} {stage.store.tokens!r}"
    assert not any(secret in shown for secret in ("access-1", "refresh-1"))


# -- a store that fails --------------------------------------------------------------------------------------------------


async def test_a_store_that_fails_at_the_first_read_is_a_temporary_failure() -> None:
    stage = TokenStage()
    stage.store.failures = 1
    with pytest.raises(TokenUnavailable):
        await stage.node.get_token()

    assert await stage.node.get_token() == "access-1"


async def test_known_tokens_are_used_while_the_store_fails() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.node.notify_changed()
    stage.store.failures = 1

    assert await stage.node.get_token() == "access-1"


async def test_an_outage_of_the_store_is_logged_with_its_reason_and_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = TokenStage()
    stage.store.failures = 1
    with pytest.raises(TokenUnavailable):
        await stage.node.get_token()

    (record,) = (each for each in caplog.records if each.message == "upstream.tokens_not_read")
    assert record.exc_info is None
    assert vars(record)["reason"] == "The disk is full."


async def test_a_store_that_fails_at_a_refresh_is_a_temporary_failure() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.store.failures = 10
    with pytest.raises(TokenUnavailable):
        await stage.node.get_token(other_than="access-1")

    assert stage.servers.requests == []
    stage.store.failures = 0
    stage.clock.advance(RETRY_SECONDS)
    assert await stage.node.get_token(other_than="access-1") == "access-2"


async def test_a_refusal_is_explained_although_the_store_fails() -> None:
    stage = TokenStage()
    await stage.node.get_token()
    stage.store.failures = 1

    assert isinstance(await explain(stage.node, require_scope("write"), "access-1"), LoginRequired)
