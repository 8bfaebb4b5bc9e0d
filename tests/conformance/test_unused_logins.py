"""Tokens for upstreams that the configuration does not have any more."""

import logging
from datetime import datetime

import pytest

from ringback.domain.clock import seconds
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.domain.unused_logins import UNUSED_SECONDS, UPSTREAMS_MAX
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.services.logins.unused_logins import mark_unused_logins, remove_unused_tokens
from tests.support.clock import FakeClock
from tests.support.examples import ALICE, BOB
from tests.support.logins import make_tokens

UPSTREAMS = ("a", "a-b", "git", "time")


@pytest.fixture
async def filled(store: Store) -> Store:
    for upstream in UPSTREAMS:
        for owner in (SHARED_OWNER, ALICE):
            await save(store, upstream, owner=owner)
    return store


async def save(store: Store, upstream: str, *, owner: Principal, obtained_at: datetime | None = None) -> None:
    changes = {} if obtained_at is None else {"obtained_at": obtained_at}
    tokens = make_tokens(upstream=upstream, owner=owner, **changes)
    await store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=None))


async def list_upstreams(store: Store) -> list[str]:
    return list(await store.read(lambda tx: tx.unused_logins.list_upstreams(limit=UPSTREAMS_MAX)))


async def remove_all(store: Store) -> None:
    while await store.write(lambda tx: remove_unused_tokens(tx, limit=1)):
        pass


async def test_they_are_removed_thirty_days_after_the_first_start_without_the_upstream(
    filled: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert sorted(await list_upstreams(filled)) == sorted(UPSTREAMS)
    clock.advance(1)
    await filled.write(lambda tx: mark_unused_logins(tx, {"a-b", "time"}))
    clock.advance(UNUSED_SECONDS - 2)
    await remove_all(filled)
    assert sorted(await list_upstreams(filled)) == sorted(UPSTREAMS)
    await filled.write(lambda tx: mark_unused_logins(tx, {"a-b", "time"}))
    clock.advance(2)
    with caplog.at_level(logging.WARNING):
        await remove_all(filled)

    assert sorted(await list_upstreams(filled)) == ["a-b", "time"]
    removed = [vars(record) for record in caplog.records if record.msg == "upstream.tokens_removed"]
    assert {each["upstream"] for each in removed} == {"a", "git"}


async def test_they_stay_if_the_upstream_comes_back_or_was_signed_in_to_since_then_or_the_node_has_no_configuration(
    filled: Store, clock: FakeClock
) -> None:
    clock.advance(1)
    await filled.write(lambda tx: mark_unused_logins(tx, {"time"}))
    await filled.write(lambda tx: mark_unused_logins(tx, {"time", "git"}))
    await save(filled, "a", owner=BOB, obtained_at=clock.now() + seconds(1))
    await filled.write(lambda tx: mark_unused_logins(tx, ()))
    clock.advance(2 * UNUSED_SECONDS)
    await remove_all(filled)

    assert sorted(await list_upstreams(filled)) == ["a", "git", "time"]
    assert await filled.read(lambda tx: tx.upstream_tokens.get("a", ALICE)) is None
