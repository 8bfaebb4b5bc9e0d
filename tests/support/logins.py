"""Tokens of upstreams, and logins as the service completes them."""

from dataclasses import replace
from typing import Any, Final

from ringback.domain.login_waits import ANY_VERSION
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import upstream_tokens_topic
from ringback.domain.upstream_logins import SHARED_OWNER, OAuthClient, UpstreamTokens
from ringback.services.logins.login_waits import LoginWaits
from tests.support.clock import START
from tests.support.examples import ALICE

TOKENS: Final = UpstreamTokens(
    upstream="git",
    owner=SHARED_OWNER,
    version=1,
    issuer="https://login.example",
    token_endpoint="https://login.example/token",
    client=OAuthClient(client_id="ringback"),
    resource="https://mcp.example/mcp",
    scope=None,
    access_token="token-1",
    obtained_at=START,
    expires_at=None,
    logged_in_by=ALICE,
)


def make_tokens(**over: Any) -> UpstreamTokens:
    return replace(TOKENS, **over)


async def sign_in(store: Store, login_waits: LoginWaits, tokens: UpstreamTokens = TOKENS) -> None:
    """Write the tokens, and queue the calls that wait for them, in one unit."""

    async def complete_login(tx: Transaction) -> None:
        stored = await tx.upstream_tokens.get(tokens.upstream, tokens.owner)
        version = 1 if stored is None else stored.version + 1
        expected = None if stored is None else stored.version
        signed_in = replace(tokens, version=version)
        assert await tx.upstream_tokens.save(signed_in, expected_version=expected)
        tx.notify(upstream_tokens_topic(tokens.upstream, tokens.owner))
        await login_waits.resume_calls(tx, signed_in)

    await store.write(complete_login)


async def read_waiting(store: Store, upstream: str = "git", owner: Principal = SHARED_OWNER) -> list[str]:
    """The ids of the calls that have a row of a wait."""
    return list(
        await store.read(
            lambda tx: tx.login_waits.list_waiting(upstream, owner, tokens_version=ANY_VERSION, limit=1000)
        )
    )
