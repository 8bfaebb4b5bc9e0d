"""What an upstream told and listed: when it counts as changed, when as old, and what of it is kept."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ringback.domain.upstream_rows import PROFILE_PART, CatalogPart
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamProfile
from ringback.upstreams.catalog import catalog_cache as shelf_module
from ringback.upstreams.catalog.catalog_cache import CatalogCache
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream
from tests.support.clock import FakeClock

START = datetime(2026, 11, 20, tzinfo=UTC)
TOOL: dict[str, Any] = {"name": "log", "inputSchema": {"type": "object"}}
NEW: dict[str, Any] = {"name": "diff", "inputSchema": {"type": "object"}}
PROFILE = UpstreamProfile(protocol_version="2025-11-25", capabilities={}, instructions=None, server_info={})


class RecordingStore:
    """A store of which a test says whether it can be written."""

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
        self.shelf = CatalogCache("git", clock=self.clock, change_notifications=changes, save_part=self.kept)

    def read_changes(self) -> list[Listing | None]:
        return [change.listing for change in self.stream.drain()]


@pytest.fixture
def desk() -> Any:
    changes = ChangeNotifications()
    with changes.subscribe_changes() as stream:
        yield CatalogCacheHarness(stream, changes)


async def test_the_first_list_is_no_change_and_another_one_is(desk: CatalogCacheHarness) -> None:
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])
    assert desk.read_changes() == []

    await desk.shelf.put_listing(Listing.TOOLS, [TOOL, NEW])
    assert desk.read_changes() == [Listing.TOOLS]
    assert list(desk.shelf.tools or {}) == ["log", "diff"]
    assert desk.kept.parts == [("tools", [TOOL]), ("tools", [TOOL, NEW])]


async def test_a_notified_change_is_not_notified_again_when_it_is_listed(desk: CatalogCacheHarness) -> None:
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])
    desk.shelf.mark_requested(Listing.TOOLS)
    desk.shelf.handle_change(UpstreamChange(upstream="git", listing=Listing.TOOLS))
    assert desk.shelf.get_age_seconds(Listing.TOOLS) is None

    await desk.shelf.put_listing(Listing.TOOLS, [NEW])
    assert desk.read_changes() == [Listing.TOOLS]


async def test_resources_and_their_templates_are_notified_together(desk: CatalogCacheHarness) -> None:
    for listing in (Listing.RESOURCES, Listing.RESOURCE_TEMPLATES):
        await desk.shelf.put_listing(listing, [])
        desk.shelf.mark_requested(listing)
    desk.shelf.handle_change(UpstreamChange(upstream="git", listing=Listing.RESOURCES))
    assert (
        desk.shelf.get_age_seconds(Listing.RESOURCES) is desk.shelf.get_age_seconds(Listing.RESOURCE_TEMPLATES) is None
    )
    await desk.shelf.put_listing(Listing.RESOURCE_TEMPLATES, [])
    assert desk.read_changes() == [Listing.RESOURCES]

    await desk.shelf.put_listing(Listing.RESOURCE_TEMPLATES, [{"uriTemplate": "book://{n}"}])
    assert desk.read_changes() == [Listing.RESOURCES]


async def test_a_list_is_current_once_it_was_answered_and_has_its_age_also_when_it_was_not(
    desk: CatalogCacheHarness,
) -> None:
    desk.shelf.restore_part(CatalogPart(upstream="git", part="tools", body=[TOOL], fetched_at=START))
    assert desk.shelf.get_entries(Listing.TOOLS) == [TOOL]
    assert (desk.shelf.get_age_seconds(Listing.TOOLS), desk.shelf.is_current(Listing.TOOLS)) == (None, False)

    desk.shelf.mark_requested(Listing.TOOLS)
    desk.clock.advance(3)
    assert (desk.shelf.get_age_seconds(Listing.TOOLS), desk.shelf.is_current(Listing.TOOLS)) == (3.0, False)
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])
    assert desk.shelf.is_current(Listing.TOOLS)


async def test_a_list_that_failed_to_be_stored_is_stored_with_the_next_notification(desk: CatalogCacheHarness) -> None:
    desk.kept.works = False
    await desk.shelf.put_profile(PROFILE)
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])
    desk.kept.works = True
    await desk.shelf.put_profile(PROFILE)
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])
    await desk.shelf.put_listing(Listing.TOOLS, [TOOL])

    assert [part for part, _ in desk.kept.parts] == [PROFILE_PART, "tools"]


async def test_a_profile_is_kept_and_read_back_whole(desk: CatalogCacheHarness) -> None:
    said = UpstreamProfile(
        protocol_version="2026-07-28", capabilities={"events": {}}, instructions="Ask.", server_info={"name": "git"}
    )
    await desk.shelf.put_profile(said)
    part, body = desk.kept.parts[0]
    other = CatalogCache("git", clock=desk.clock, change_notifications=ChangeNotifications(), save_part=desk.kept)
    other.restore_part(CatalogPart(upstream="git", part=part, body=body, fetched_at=START))

    assert other.profile == said


@pytest.mark.parametrize("capabilities", [{"huge": "x" * 100}, {"number": 2**80}])
async def test_a_profile_that_cannot_be_kept_is_none(
    desk: CatalogCacheHarness, capabilities: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf_module, "PROFILE_BYTES_MAX", 100)
    await desk.shelf.put_profile(
        UpstreamProfile(protocol_version="2026-07-28", capabilities=capabilities, instructions=None, server_info={})
    )

    assert desk.shelf.profile is None
    assert desk.kept.parts == []
