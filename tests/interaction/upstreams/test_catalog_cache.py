"""Profiles and lists outlive the process: they are available while an upstream is down."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import Listing, UpstreamChange
from ringback.runner.drivers.selection import predict_driver_name
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.registry import UpstreamRegistry
from scripts.ports import free_port
from tests.support.databases import count_rows, query_rows
from tests.support.engine import wait_until
from tests.support.examples import ALICE
from tests.support.library_upstream import ERAS, INSTRUCTIONS, UPSTREAM_NAME, LibraryUpstream
from tests.support.proxies import list_when_connected, next_change
from tests.support.stores import open_test_store
from tests.support.upstreams import make_http_config, serving

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@asynccontextmanager
async def running_upstreams(folder: Path, *configs: UpstreamConfig) -> AsyncGenerator[UpstreamRegistry]:
    """One run of the service with the store in this folder."""
    clock = SystemClock()
    async with (
        open_test_store(folder, clock) as store,
        UpstreamRegistry(
            configs,
            clock=clock,
            random_fraction=lambda: 0.5,
            predict_driver_name=predict_driver_name,
            connect_timeout_seconds=0.1,
            store=store,
        ) as upstreams,
    ):
        yield upstreams


async def wait_until_listed(upstreams: UpstreamRegistry) -> None:
    for listing in Listing:
        await list_when_connected(upstreams.proxy, UPSTREAM_NAME, listing)


@pytest.mark.parametrize("era", ERAS)
async def test_lists_and_profile_are_there_after_a_restart_while_the_upstream_is_down(tmp_path: Path, era: str) -> None:
    port = free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    async with serving(LibraryUpstream().app(era), port=port), running_upstreams(tmp_path, config) as upstreams:
        await wait_until_listed(upstreams)
        before = {
            listing: await upstreams.proxy.list_entries(UPSTREAM_NAME, listing, principal=ALICE) for listing in Listing
        }

    async with running_upstreams(tmp_path, config) as upstreams:
        assert {
            listing: await upstreams.proxy.list_entries(UPSTREAM_NAME, listing, principal=ALICE) for listing in Listing
        } == before
        profile = await upstreams.proxy.get_profile(UPSTREAM_NAME, principal=ALICE)
        assert profile is not None
        assert profile.instructions == INSTRUCTIONS
        assert [tool.name for tool in await upstreams.tool_catalog.list_tools(UPSTREAM_NAME, principal=ALICE)] == [
            "talk"
        ]
        # Neither a tool nor arguments are refused by what is only remembered.
        await upstreams.tool_catalog.check_call(UPSTREAM_NAME, "new", {}, visible_upstreams=None, principal=ALICE)


async def test_a_list_that_changed_while_disconnected_is_notified(tmp_path: Path) -> None:
    library, port = LibraryUpstream(), free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    async with serving(library.app("modern"), port=port):
        async with running_upstreams(tmp_path, config) as upstreams:
            await wait_until_listed(upstreams)
        library.books.append("book://new")

        clock = SystemClock()
        async with open_test_store(tmp_path, clock) as store:
            upstreams = UpstreamRegistry(
                [config], clock=clock, random_fraction=lambda: 0.5, predict_driver_name=predict_driver_name, store=store
            )
            with upstreams.change_notifications.subscribe_changes(principal=None) as changes:
                async with upstreams:
                    change = await next_change(changes)

    assert change == UpstreamChange(upstream=UPSTREAM_NAME, listing=Listing.RESOURCES)


async def test_a_list_changed_notification_refreshes_the_stored_list(tmp_path: Path) -> None:
    library, port = LibraryUpstream(), free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    async with serving(library.app("modern"), port=port), running_upstreams(tmp_path, config) as upstreams:
        await wait_until_listed(upstreams)
        library.books = ["book://new"]
        await library.publish_list_changes()
        await wait_until(lambda: is_resource_stored(tmp_path, "book://new"))

    async with running_upstreams(tmp_path, config) as upstreams:
        books = await upstreams.proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)
    assert [book["uri"] for book in books] == ["book://new"]


async def is_resource_stored(folder: Path, uri: str) -> bool:
    rows = query_rows(folder, "SELECT body FROM catalog WHERE part = 'resources'")
    return any(uri in body for (body,) in rows)


async def test_stored_lists_are_deleted_with_the_upstreams_configuration(tmp_path: Path) -> None:
    port = free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    async with serving(LibraryUpstream().app("modern"), port=port), running_upstreams(tmp_path, config) as upstreams:
        await wait_until_listed(upstreams)
    async with running_upstreams(tmp_path):
        pass

    async with running_upstreams(tmp_path, config) as upstreams:
        assert await upstreams.proxy.get_profile(UPSTREAM_NAME, principal=ALICE) is None
        with pytest.raises(Unavailable):
            await upstreams.proxy.list_entries(UPSTREAM_NAME, Listing.TOOLS, principal=ALICE)


async def test_stored_lists_are_deleted_when_a_running_service_removes_the_upstream(tmp_path: Path) -> None:
    port = free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    another = make_http_config("http://127.0.0.1:1/mcp", name=UPSTREAM_NAME)
    async with serving(LibraryUpstream().app("modern"), port=port), running_upstreams(tmp_path, config) as upstreams:
        await wait_until_listed(upstreams)
        assert list_stored_parts(tmp_path) > 0
        upstreams.reconfigure([])

        async def forgotten() -> bool:
            return list_stored_parts(tmp_path) == 0

        await wait_until(forgotten)
        upstreams.reconfigure([another])
        assert await upstreams.proxy.get_profile(UPSTREAM_NAME, principal=ALICE) is None
        with pytest.raises(Unavailable):
            await upstreams.proxy.list_entries(UPSTREAM_NAME, Listing.TOOLS, principal=ALICE)


def list_stored_parts(folder: Path) -> int:
    return count_rows(folder)["catalog"]
