"""Two nodes whose upstream asks for different scopes at the same time."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.protocol.errors import LoginRequired
from ringback.services.logins.login_tokens import get_readable_tokens
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.client_store import StoredClients
from ringback.upstreams.oauth.login_offers import LoginOffers
from ringback.upstreams.oauth.stored_tokens import StoredTokenSource
from ringback.upstreams.oauth.token_store import StoredTokens
from tests.support.clock import OffsetClock
from tests.support.interleaving import Node, Nodes, open_nodes
from tests.support.logins import make_tokens
from tests.support.scripted_authorization import CONFIG, UPSTREAM, ScriptedServers

TOKENS = make_tokens(upstream=CONFIG.name, resource=UPSTREAM, access_token="access-1", scope="tools", expires_at=None)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncGenerator[Nodes]:
    async with open_nodes(tmp_path, OffsetClock()) as opened:
        yield opened


def make_source(node: Node) -> StoredTokenSource:
    servers, clock = ScriptedServers(), OffsetClock()
    return StoredTokenSource(
        CONFIG,
        SHARED_OWNER,
        store=StoredTokens(node.store),
        clients=StoredClients(node.store),
        http=servers.make_http(CONFIG),
        offers=LoginOffers(CONFIG, servers.make_clients(), clock=clock),
        clock=clock,
    )


async def test_the_next_login_asks_for_the_scopes_that_both_nodes_have_noted(nodes: Nodes) -> None:
    await nodes.first.store.write(lambda tx: tx.upstream_tokens.save(TOKENS, expected_version=None))
    first, second = make_source(nodes.first), make_source(nodes.second)
    for source in (first, second):
        assert await source.get_token() == "access-1"

    def demand(scope: str) -> Refusal:
        return Refusal(status_code=403, is_bearer=True, error="insufficient_scope", scope=scope)

    refused = await nodes.interleave(
        lambda _: first.explain_refusal(demand("read"), token="access-1"),
        lambda _: second.explain_refusal(demand("write"), token="access-1"),
    )

    assert [type(each) for each in refused] == [LoginRequired, LoginRequired]
    stored = await nodes.first.store.read(lambda tx: get_readable_tokens(tx, CONFIG.name, SHARED_OWNER))
    assert stored is not None
    assert set(cast("str", stored.required_scope).split()) == {"tools", "read", "write"}
