"""One node at a time refreshes the tokens of an owner, whatever the store."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.domain.signals import upstream_tokens_topic
from ringback.domain.upstream_logins import SHARED_OWNER, UpstreamTokens
from ringback.upstreams.oauth.token_store import REFRESH_CLAIM_SECONDS, StoredTokens
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.logins import make_tokens


async def add_tokens(store: Store, owner: Principal = SHARED_OWNER) -> UpstreamTokens:
    tokens = make_tokens(owner=owner, refresh_token="refresh-1")
    assert await store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=None))
    return tokens


async def test_one_of_many_nodes_gets_the_claim(store: Store) -> None:
    tokens, stored = await add_tokens(store), StoredTokens(store)
    claims = await asyncio.gather(*(stored.claim_refresh(tokens) for _ in range(8)))

    (ours,) = (claim for claim in claims if claim.is_ours)
    assert isinstance(ours.tokens, UpstreamTokens)
    assert ours.tokens.version == tokens.version + 1
    assert ours.tokens.access_token == tokens.access_token
    assert {claim.wait_seconds for claim in claims if not claim.is_ours} == {REFRESH_CLAIM_SECONDS}


async def test_a_claim_of_the_same_version_waits_for_the_claim_and_gets_it_after_its_end(
    store: Store, clock: FakeClock
) -> None:
    stored = StoredTokens(store)
    first = (await stored.claim_refresh(await add_tokens(store, ALICE))).tokens
    assert isinstance(first, UpstreamTokens)
    clock.advance(REFRESH_CLAIM_SECONDS / 2)
    assert (await stored.claim_refresh(first)).wait_seconds == REFRESH_CLAIM_SECONDS / 2
    clock.advance(REFRESH_CLAIM_SECONDS / 2)

    assert (await stored.claim_refresh(first)).is_ours


async def test_a_claim_that_was_left_while_the_clock_was_far_ahead_is_over(store: Store, clock: FakeClock) -> None:
    """Otherwise no token would be refreshed for as long as the clock had been ahead."""
    tokens = await add_tokens(store)
    left = replace(tokens, version=tokens.version + 1, refresh_claimed_until=clock.now() + timedelta(days=30))
    assert await store.write(lambda tx: tx.upstream_tokens.save(left, expected_version=tokens.version))

    assert (await StoredTokens(store).claim_refresh(left)).is_ours


async def test_new_tokens_end_the_claim_and_are_notified(store: Store) -> None:
    stored = StoredTokens(store)
    claimed = (await stored.claim_refresh(await add_tokens(store))).tokens
    assert isinstance(claimed, UpstreamTokens)
    fresh = replace(claimed, version=claimed.version + 1, access_token="access-2", refresh_claimed_until=None)
    with store.signals.listen(upstream_tokens_topic(claimed.upstream, SHARED_OWNER)) as waiter:
        assert await stored.save(fresh, expected_version=claimed.version)
        assert await waiter.wait(60)

    assert await stored.load(claimed.upstream, SHARED_OWNER) == fresh


async def test_tokens_of_a_login_are_not_overwritten_by_an_earlier_refresh(store: Store) -> None:
    stored = StoredTokens(store)
    claimed = (await stored.claim_refresh(await add_tokens(store))).tokens
    assert isinstance(claimed, UpstreamTokens)
    login = replace(claimed, version=claimed.version + 5, access_token="access-of-the-login")
    assert await store.write(lambda tx: tx.upstream_tokens.save(login, expected_version=claimed.version))

    assert not await stored.save(replace(claimed, version=claimed.version + 1), expected_version=claimed.version)
    assert await stored.load(claimed.upstream, SHARED_OWNER) == login


async def test_a_claim_of_deleted_tokens_finds_none(store: Store) -> None:
    tokens = await add_tokens(store)
    await store.write(lambda tx: tx.upstream_tokens.delete(tokens.upstream, tokens.owner))

    assert (await StoredTokens(store).claim_refresh(tokens)).tokens is None
