"""A login whose tokens have a key that a node lacks is left to the nodes that have it, and is not asked for again."""

import logging
from base64 import b64encode
from typing import Final

import pytest

from ringback.client import RingbackClient, Unavailable
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.encryption import SealedColumn
from ringback.domain.errors import ContentUnreadable
from ringback.domain.ids import LoginId
from ringback.domain.upstream_logins import (
    SHARED_OWNER,
    AuthorizationRequest,
    GrantedTokens,
    UnreadableTokens,
    UpstreamLogin,
    UpstreamTokens,
)
from ringback.protocol.errors import LoginRequired
from ringback.services.logins.login_tokens import end_login, replace_tokens
from ringback.services.sealing_keys import accept_lost_keys
from ringback.upstreams.oauth.token_store import StoredTokens
from tests.interaction.nodes.conftest import Site
from tests.support.clock import START
from tests.support.engine import Engine, OnProgress, ScriptedUpstreams, wait_until
from tests.support.examples import ALICE
from tests.support.executions import lease_new_call, run_execution
from tests.support.keyed_nodes import KEYS
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.browser import Browser
from tests.support.login_peers.sdk_peer import serving_sdk_peer
from tests.support.logins import make_tokens
from tests.support.nodes import SECRET_KEYS
from tests.support.upstreams import make_http_config

pytestmark = pytest.mark.requirement("R34")

REDIRECT_URI: Final = "http://127.0.0.1:9/callback"


async def test_a_login_that_a_node_cannot_read_is_not_asked_for_again_and_its_calls_run_at_other_nodes(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It counted as no login: users were asked to sign in again, and a new login replaced tokens that other nodes used."""
    keys = f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}"
    async with serving_sdk_peer(AccountServer().app) as peer:
        files = (make_http_config(peer.url, name="files"),)
        without = await site.cluster.start_node(upstreams=files)
        having = await site.cluster.start_node(upstreams=files, secret_keys=keys, roles="api")
        key = await site.cluster.create_key("alice")
        here, there = await without.client(key), await having.client(key)
        await sign_in(there, account="ada")

        async def is_found() -> bool:
            return (await here.upstreams())[0].last_error == "tokens_unreadable"

        await wait_until(is_found)
        (upstream,) = await here.upstreams()
        assert (upstream.state, upstream.login and upstream.login.state) == ("failing", "unreadable")
        assert "a key that this node lacks" in (upstream.advice or "")
        for change in (here.start_login("files", redirect_uri=REDIRECT_URI), here.end_login("files")):
            with pytest.raises(Unavailable, match="lacks the key"):
                await change
        with pytest.raises(Unavailable, match="lacks the key"):
            await here.tools("files")

        with caplog.at_level(logging.INFO):
            call = (await here.start_call("files", "whoami", {})).call

            async def is_handed_back() -> bool:
                return "call.handed_back" in caplog.messages

            await wait_until(is_handed_back)
        waiting = await here.call(call.id)
        assert (waiting.status, waiting.input_requests) == ("working", {})
        await site.cluster.start_node(upstreams=files, secret_keys=keys)
        await wait_until_completed(here, call.id)
        assert (await here.result(call.id))["content"][0]["text"] == "ada"
        assert caplog.messages.count("call.handed_back") == 1


async def test_a_call_in_a_session_whose_login_was_replaced_by_one_with_another_key_goes_to_the_node_that_has_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    keys = f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}"
    async with serving_sdk_peer(AccountServer().app) as peer:
        files = (make_http_config(peer.url, name="files"),)
        without = await site.cluster.start_node(upstreams=files)
        having = await site.cluster.start_node(upstreams=files, secret_keys=keys, roles="api")
        key = await site.cluster.create_key("alice")
        here, there = await without.client(key), await having.client(key)
        await sign_in(here, account="ada")
        first = await here.start_call("files", "whoami", {})
        await wait_until_completed(here, first.call.id)

        with caplog.at_level(logging.INFO):
            await sign_in(there, account="bob")
            second = await here.start_call("files", "whoami", {})

            async def is_handed_back() -> bool:
                return "call.handed_back" in caplog.messages

            await wait_until(is_handed_back)
        await site.cluster.start_node(upstreams=files, secret_keys=keys)
        await wait_until_completed(here, second.call.id)

        texts = [(await here.result(each.call.id))["content"][0]["text"] for each in (first, second)]
        assert (texts, len(peer.list_tokens_of_calls("whoami"))) == (["ada", "bob"], 2)


async def sign_in(client: RingbackClient, *, account: str) -> None:
    started = await client.start_login("files", redirect_uri=REDIRECT_URI)
    async with Browser(account=account) as browser:
        await client.complete_login("files", await browser.approve(started.authorization_url))


async def wait_until_completed(client: RingbackClient, call_id: str) -> None:
    async def is_completed() -> bool:
        return (await client.call(call_id)).status == "completed"

    await wait_until(is_completed)


async def test_a_login_whose_key_is_lost_is_asked_for_again(nodes: tuple[Engine, Engine]) -> None:
    without, having = nodes
    tokens = make_tokens(owner=SHARED_OWNER)
    await having.store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=None))
    found: list[object] = []
    for _ in range(2):
        found.append(await without.store.read(lambda tx: tx.upstream_tokens.get(tokens.upstream, SHARED_OWNER)))
        found += await without.store.read(lambda tx: tx.upstream_tokens.list_owned([tokens.upstream], [SHARED_OWNER]))
        await accept_lost_keys(without.store, ["old"])

    unreadable = UnreadableTokens(
        upstream=tokens.upstream,
        owner=SHARED_OWNER,
        version=tokens.version,
        resource=tokens.resource,
        scope=tokens.scope,
        expires_at=tokens.expires_at,
    )
    assert found == [unreadable, unreadable, None]
    assert await having.store.read(lambda tx: tx.upstream_tokens.get(tokens.upstream, SHARED_OWNER)) == tokens


async def test_tokens_that_only_other_nodes_can_read_are_neither_replaced_nor_deleted(
    nodes: tuple[Engine, Engine],
) -> None:
    without, having = nodes
    tokens = make_tokens(owner=SHARED_OWNER)
    await having.store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=None))
    request = AuthorizationRequest(
        issuer=tokens.issuer,
        token_endpoint=tokens.token_endpoint,
        client=tokens.client,
        redirect_uri=REDIRECT_URI,
        code_verifier="verifier",
        resource=tokens.resource,
        scope=None,
        requires_issuer=False,
    )
    login = UpstreamLogin(
        id=LoginId("login_1"),
        state_hash="hash",
        upstream=tokens.upstream,
        owner=SHARED_OWNER,
        principal=ALICE,
        key_id=None,
        request=request,
        created_at=START,
        expires_at=START,
    )
    with pytest.raises(ContentUnreadable, match="Send the request again"):
        await without.store.write(lambda tx: replace_tokens(tx, login, GrantedTokens(access_token="new")))
    with pytest.raises(ContentUnreadable, match="Send the request again"):
        await without.store.write(lambda tx: end_login(tx, tokens.upstream, SHARED_OWNER))
    assert await having.store.read(lambda tx: tx.upstream_tokens.get(tokens.upstream, SHARED_OWNER)) == tokens


async def test_a_call_that_was_refused_before_such_a_login_is_queued_for_the_nodes_that_can_read_it(
    nodes: tuple[Engine, Engine],
) -> None:
    """It was parked for a login that was already completed."""
    without, having = nodes

    async def refuse(call: Call, on_progress: OnProgress) -> CallCompletion:
        await having.store.write(lambda tx: tx.upstream_tokens.save(make_tokens(), expected_version=None))
        raise LoginRequired("The upstream requires a login.", tokens_version=None)

    leased = await lease_new_call(without)
    await run_execution(without.make_execution(leased, ScriptedUpstreams(refuse)))

    call = await without.read_call(leased)
    assert (call.phase, call.status, call.dispatched_at) == (CallPhase.QUEUED, CallStatus.WORKING, None)


async def test_a_node_refreshes_tokens_that_it_has_read_and_another_node_has_sealed_anew(
    nodes: tuple[Engine, Engine],
) -> None:
    without, having = nodes
    tokens = make_tokens(owner=SHARED_OWNER)
    await without.store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=None))
    await having.store.write(lambda tx: tx.sealed_values.reseal(SealedColumn.TOKENS, after="", limit=9))

    claim = await StoredTokens(without.store).claim_refresh(tokens)
    assert (claim.is_ours, isinstance(claim.tokens, UpstreamTokens)) == (True, True)
    older = await StoredTokens(without.store).claim_refresh(tokens)
    assert not older.is_ours
