"""What upstreams said of themselves and listed outlives the process: it is there while they are down."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import UpstreamChange, Listing
from ringback.runner.config import UpstreamConfig
from ringback.runner.upstreams import UpstreamRegistry
from tests.support.engine import until
from tests.support.library import ERAS, INSTRUCTIONS, NAME, Library
from tests.support.passages import eventually, next_of
from tests.support.stores import sqlite_store
from tests.support.upstreams import free_port, http_config, serving

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@asynccontextmanager
async def living(folder: Path, *configs: UpstreamConfig) -> AsyncGenerator[UpstreamRegistry]:
    """One life of a process over this folder's store."""
    clock = SystemClock()
    async with (
        sqlite_store(folder, clock) as store,
        UpstreamRegistry(configs, clock=clock, random_fraction=lambda: 0.5, connect_timeout_seconds=0.1, store=store) as upstreams,
    ):
        yield upstreams


async def eventually_listed(upstreams: UpstreamRegistry) -> None:
    for listing in Listing:
        await eventually(upstreams.proxy, NAME, listing)


@pytest.mark.parametrize("era", ERAS)
async def test_lists_and_profile_are_there_after_a_restart_while_the_upstream_is_down(tmp_path: Path, era: str) -> None:
    port = free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with serving(Library().app(era), port=port), living(tmp_path, config) as upstreams:
        await eventually_listed(upstreams)
        before = {listing: await upstreams.proxy.list_entries(NAME, listing) for listing in Listing}

    async with living(tmp_path, config) as upstreams:
        assert {listing: await upstreams.proxy.list_entries(NAME, listing) for listing in Listing} == before
        profile = await upstreams.proxy.get_profile(NAME)
        assert profile is not None
        assert profile.instructions == INSTRUCTIONS
        assert [tool.name for tool in await upstreams.tool_catalog.list_tools(NAME)] == ["talk"]
        # Neither a tool nor arguments are refused by what is only remembered.
        await upstreams.tool_catalog.check_call(NAME, "new", {}, visible_upstreams=None)


async def test_a_list_that_changed_while_nobody_could_hear_it_counts_as_told(tmp_path: Path) -> None:
    library, port = Library(), free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with serving(library.app("modern"), port=port):
        async with living(tmp_path, config) as upstreams:
            await eventually_listed(upstreams)
        library.books.append("book://new")

        clock = SystemClock()
        async with sqlite_store(tmp_path, clock) as store:
            upstreams = UpstreamRegistry([config], clock=clock, random_fraction=lambda: 0.5, store=store)
            with upstreams.change_notifications.subscribe_changes() as changes:
                async with upstreams:
                    told = await next_of(changes)

    assert told == UpstreamChange(upstream=NAME, listing=Listing.RESOURCES)


async def test_a_list_that_is_told_to_have_changed_is_kept_before_anybody_asks(tmp_path: Path) -> None:
    library, port = Library(), free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with serving(library.app("modern"), port=port), living(tmp_path, config) as upstreams:
        await eventually_listed(upstreams)
        library.books = ["book://new"]
        await library.tell_of_lists()
        await until(lambda: _is_kept(tmp_path, "book://new"))

    async with living(tmp_path, config) as upstreams:
        books = await upstreams.proxy.list_entries(NAME, Listing.RESOURCES)
    assert [book["uri"] for book in books] == ["book://new"]


async def _is_kept(folder: Path, uri: str) -> bool:
    with closing(sqlite3.connect(folder / "ringback.db")) as beside:
        rows = beside.execute("SELECT body FROM catalog WHERE part = 'resources'").fetchall()
    return any(uri in body for (body,) in rows)


async def test_what_was_kept_of_an_upstream_goes_with_its_configuration(tmp_path: Path) -> None:
    port = free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with serving(Library().app("modern"), port=port), living(tmp_path, config) as upstreams:
        await eventually_listed(upstreams)
    async with living(tmp_path):
        pass

    async with living(tmp_path, config) as upstreams:
        assert await upstreams.proxy.get_profile(NAME) is None
        with pytest.raises(Unavailable):
            await upstreams.proxy.list_entries(NAME, Listing.TOOLS)


async def test_what_is_known_of_an_upstream_goes_when_it_is_removed_while_the_service_runs(tmp_path: Path) -> None:
    port = free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    another = http_config("http://127.0.0.1:1/mcp", name=NAME)
    async with serving(Library().app("modern"), port=port), living(tmp_path, config) as upstreams:
        await eventually_listed(upstreams)
        assert _parts_kept(tmp_path) > 0
        upstreams.reconfigure([])

        async def forgotten() -> bool:
            return _parts_kept(tmp_path) == 0

        await until(forgotten)
        upstreams.reconfigure([another])
        assert await upstreams.proxy.get_profile(NAME) is None
        with pytest.raises(Unavailable):
            await upstreams.proxy.list_entries(NAME, Listing.TOOLS)


def _parts_kept(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "ringback.db")) as beside:
        (count,) = beside.execute("SELECT count(*) FROM catalog").fetchone()
    return count
