"""The catalog cache: when a list counts as changed, when as outdated, and what is stored."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ringback.domain.upstream_rows import PROFILE_PART, CatalogPart
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamProfile
from ringback.upstreams.catalog import catalog_cache
from ringback.upstreams.catalog.catalog_cache import CatalogCache
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream
from tests.support.clock import FakeClock

START = datetime(2026, 11, 20, tzinfo=UTC)
TOOL: dict[str, Any] = {"name": "log", "inputSchema": {"type": "object"}}
NEW: dict[str, Any] = {"name": "diff", "inputSchema": {"type": "object"}}
PROFILE = UpstreamProfile(protocol_version="2025-11-25", capabilities={}, instructions=None, server_info={})


class RecordingStore:
    """A cache with a store that a test can make unavailable."""

    def __init__(self) -> None:
        self.works = True
        self.parts: list[tuple[str, Any]] = []

    async def __call__(self, upstream: str, part: str, body: Any) -> bool:
        assert upstream == "git"
        if self.works:
            self.parts.append((part, body))
        return self.works


class CatalogCacheHarness:
    def __init__(self, stream: ChangeStream, changes: ChangeNotifications) -> None:
        self.stream = stream
        self.clock = FakeClock()
        self.kept = RecordingStore()
        self.cache = CatalogCache("git", clock=self.clock, change_notifications=changes, save_part=self.kept)

    def read_changes(self) -> list[Listing | None]:
        return [change.listing for change in self.stream.drain()]


@pytest.fixture
def harness() -> Any:
    changes = ChangeNotifications()
    with changes.subscribe_changes(principal=None) as stream:
        yield CatalogCacheHarness(stream, changes)


async def test_the_first_list_is_no_change_and_another_one_is(harness: CatalogCacheHarness) -> None:
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])
    assert harness.read_changes() == []

    await harness.cache.put_listing(Listing.TOOLS, [TOOL, NEW])
    assert harness.read_changes() == [Listing.TOOLS]
    assert list(harness.cache.tools or {}) == ["log", "diff"]
    assert harness.kept.parts == [("tools", [TOOL]), ("tools", [TOOL, NEW])]


async def test_a_notified_change_is_not_notified_again_when_it_is_listed(harness: CatalogCacheHarness) -> None:
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])
    harness.cache.mark_requested(Listing.TOOLS)
    harness.cache.handle_change(UpstreamChange(upstream="git", listing=Listing.TOOLS))
    assert harness.cache.get_age_seconds(Listing.TOOLS) is None

    await harness.cache.put_listing(Listing.TOOLS, [NEW])
    assert harness.read_changes() == [Listing.TOOLS]


async def test_resources_and_their_templates_are_notified_together(harness: CatalogCacheHarness) -> None:
    for listing in (Listing.RESOURCES, Listing.RESOURCE_TEMPLATES):
        await harness.cache.put_listing(listing, [])
        harness.cache.mark_requested(listing)
    harness.cache.handle_change(UpstreamChange(upstream="git", listing=Listing.RESOURCES))
    assert (
        harness.cache.get_age_seconds(Listing.RESOURCES)
        is harness.cache.get_age_seconds(Listing.RESOURCE_TEMPLATES)
        is None
    )
    await harness.cache.put_listing(Listing.RESOURCE_TEMPLATES, [])
    assert harness.read_changes() == [Listing.RESOURCES]

    await harness.cache.put_listing(Listing.RESOURCE_TEMPLATES, [{"uriTemplate": "book://{n}"}])
    assert harness.read_changes() == [Listing.RESOURCES]


async def test_a_list_is_current_once_it_was_answered_and_has_its_age_also_when_it_was_not(
    harness: CatalogCacheHarness,
) -> None:
    harness.cache.restore_part(CatalogPart(upstream="git", part="tools", body=[TOOL], fetched_at=START))
    assert harness.cache.get_entries(Listing.TOOLS) == [TOOL]
    assert (harness.cache.get_age_seconds(Listing.TOOLS), harness.cache.is_current(Listing.TOOLS)) == (None, False)

    harness.cache.mark_requested(Listing.TOOLS)
    harness.clock.advance(3)
    assert (harness.cache.get_age_seconds(Listing.TOOLS), harness.cache.is_current(Listing.TOOLS)) == (3.0, False)
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])
    assert harness.cache.is_current(Listing.TOOLS)


async def test_a_list_that_failed_to_be_stored_is_stored_with_the_next_notification(
    harness: CatalogCacheHarness,
) -> None:
    harness.kept.works = False
    await harness.cache.put_profile(PROFILE)
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])
    harness.kept.works = True
    await harness.cache.put_profile(PROFILE)
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])
    await harness.cache.put_listing(Listing.TOOLS, [TOOL])

    assert [part for part, _ in harness.kept.parts] == [PROFILE_PART, "tools"]


async def test_a_profile_is_kept_and_read_back_whole(harness: CatalogCacheHarness) -> None:
    said = UpstreamProfile(
        protocol_version="2026-07-28", capabilities={"events": {}}, instructions="Ask.", server_info={"name": "git"}
    )
    await harness.cache.put_profile(said)
    part, body = harness.kept.parts[0]
    other = CatalogCache("git", clock=harness.clock, change_notifications=ChangeNotifications(), save_part=harness.kept)
    other.restore_part(CatalogPart(upstream="git", part=part, body=body, fetched_at=START))

    assert other.profile == said


@pytest.mark.parametrize("capabilities", [{"huge": "x" * 100}, {"number": 2**80}])
async def test_a_profile_that_cannot_be_kept_is_none(
    harness: CatalogCacheHarness, capabilities: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_cache, "PROFILE_BYTES_MAX", 100)
    await harness.cache.put_profile(
        UpstreamProfile(protocol_version="2026-07-28", capabilities=capabilities, instructions=None, server_info={})
    )

    assert harness.cache.profile is None
    assert harness.kept.parts == []
