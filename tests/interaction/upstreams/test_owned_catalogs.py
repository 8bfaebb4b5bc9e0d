"""How long the lists are stored that an upstream shows to one principal."""

from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.ids import LoginId
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import Listing
from ringback.upstreams.catalog.catalog_cache import (
    REMOVED_AT_ONCE,
    RESAVE_AFTER_SECONDS,
    RETENTION_SECONDS,
    CatalogCaches,
    OwnerCaches,
)
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from tests.support.clock import ManualClock
from tests.support.examples import ALICE, BOB
from tests.support.logins import make_tokens
from tests.support.stores import open_test_store

TOOL: Final[dict[str, Any]] = {"name": "echo", "inputSchema": {"type": "object"}}


class CatalogHarness:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.caches = CatalogCaches(clock=clock, changes=ChangeNotifications(), store=store)

    async def open_caches(self, owner: Principal, upstream: str = "git") -> OwnerCaches:
        caches = self.caches.make_caches(upstream, owner)
        await self.caches.restore_caches(caches, upstream, owner)
        return caches

    async def list_tools(self, owner: Principal, upstream: str = "git") -> None:
        """The principal uses the upstream, which sends its list."""
        await (await self.open_caches(owner, upstream)).common.put_listing(Listing.TOOLS, [TOOL])

    async def read_times(self, owner: Principal, upstream: str = "git") -> list[datetime]:
        parts = await self.store.read(lambda tx: tx.owned_catalog.list_parts(upstream, owner))
        return [part.fetched_at for part in parts]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[CatalogHarness]:
    clock = ManualClock()
    async with open_test_store(tmp_path, clock) as store:
        yield CatalogHarness(store, clock)


async def test_the_lists_for_clients_that_can_elicit_are_restored_too(harness: CatalogHarness) -> None:
    await (await harness.open_caches(ALICE)).eliciting.put_listing(Listing.TOOLS, [TOOL])

    restored = await harness.open_caches(ALICE)
    assert (restored.common.tools, list(restored.eliciting.tools or ())) == (None, ["echo"])
    assert (await harness.open_caches(BOB)).eliciting.tools is None


async def test_the_same_list_is_stored_again_once_a_day(harness: CatalogHarness) -> None:
    await harness.list_tools(ALICE)
    (first,) = await harness.read_times(ALICE)
    harness.clock.advance(RESAVE_AFTER_SECONDS)
    await harness.list_tools(ALICE)
    assert await harness.read_times(ALICE) == [first]

    now = harness.clock.advance(1)
    await harness.list_tools(ALICE)
    assert await harness.read_times(ALICE) == [now]


async def test_lists_that_were_not_used_for_a_month_are_deleted(harness: CatalogHarness) -> None:
    for number in range(REMOVED_AT_ONCE + 1):
        await harness.list_tools(Principal(f"owner-{number}"))
    harness.clock.advance(RETENTION_SECONDS)
    await harness.list_tools(ALICE)
    harness.clock.advance(1)
    await harness.caches.remove_old_parts()

    assert await harness.read_times(Principal("owner-0")) == []
    assert await harness.read_times(Principal(f"owner-{REMOVED_AT_ONCE}")) == []
    assert len(await harness.read_times(ALICE)) == 1


async def test_lists_of_removed_upstreams_are_deleted_for_all_principals(harness: CatalogHarness) -> None:
    for owner in (ALICE, BOB):
        for upstream in ("git", "time"):
            await harness.list_tools(owner, upstream)
    await harness.caches.remove_other_upstreams(["time"])

    assert [len(await harness.read_times(owner)) for owner in (ALICE, BOB)] == [0, 0]
    assert [len(await harness.read_times(owner, "time")) for owner in (ALICE, BOB)] == [1, 1]


@pytest.mark.parametrize("owner", [ALICE, SHARED_OWNER])
async def test_a_list_that_an_earlier_login_gets_late_is_not_stored(harness: CatalogHarness, owner: Principal) -> None:
    """The connection of another node may not have noticed the next login yet."""
    tokens = make_tokens(owner=owner, login_id=LoginId("login_2"))
    await harness.store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=None))
    for login_id in ("login_1", "login_2"):
        caches, login = harness.caches.make_caches("git", owner), FollowedLogin()
        login.follow(LoginId(login_id))
        caches.keep_to_login(login)
        await caches.common.put_listing(Listing.TOOLS, [{**TOOL, "description": login_id}])

    stored = await harness.store.read(lambda tx: tx.catalog.list_all())
    stored = stored or await harness.store.read(lambda tx: tx.owned_catalog.list_parts("git", owner))
    assert [part.body[0]["description"] for part in stored] == ["login_2"]
