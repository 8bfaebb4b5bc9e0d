"""The profile and the lists of an upstream, as a gateway forwards them: complete, limited, and cached."""

from typing import Any

import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import Listing
from ringback.upstreams.catalog import listing as listing_module
from tests.support.examples import ALICE
from tests.support.library_upstream import BOOK_URI, INSTRUCTIONS, UPSTREAM_NAME, LibraryUpstream
from tests.support.proxies import parametrize_eras, serving_proxy
from tests.support.upstreams import OverriddenResponses, Send, make_http_config, open_upstreams, send_result, serving

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@parametrize_eras
async def test_an_upstream_is_shown_as_it_presents_itself(era: str) -> None:
    async with serving_proxy(LibraryUpstream(), era) as (proxy, _):
        profile = await proxy.get_profile(UPSTREAM_NAME, principal=ALICE)

    assert profile is not None
    assert profile.protocol_version == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert profile.instructions == INSTRUCTIONS
    assert profile.server_info["version"] == "7"
    assert set(profile.capabilities) >= {"tools", "resources", "prompts", "completions"}


@parametrize_eras
async def test_unknown_fields_of_a_profile_are_kept(era: str) -> None:
    greeting: dict[str, Any] = {
        "capabilities": {"tools": {}, "events": {"x": 1}},
        "serverInfo": {"name": "odd", "version": "1", "mood": "fine"},
        "protocolVersion": "2025-11-25",
        "supportedVersions": ["2026-07-28"],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "odd", "version": "1", "mood": "fine"}},
    }

    async def greet(message: dict[str, Any], send: Send) -> None:
        await send_result(message, greeting, send)

    method = "server/discover" if era == "modern" else "initialize"
    app = OverriddenResponses(LibraryUpstream().app(era), {method: greet})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        profile = await upstreams.proxy.get_profile(UPSTREAM_NAME, principal=ALICE)

    assert profile is not None
    assert profile.capabilities["events"] == {"x": 1}
    assert profile.server_info["mood"] == "fine"


async def test_an_upstream_that_writes_null_for_what_it_does_not_say_is_reached() -> None:
    greeting: dict[str, Any] = {
        "capabilities": {"tools": {}, "prompts": None},
        "serverInfo": {"name": "odd", "version": "1"},
        "protocolVersion": "2025-11-25",
        "instructions": None,
        "_meta": None,
    }

    async def greet(message: dict[str, Any], send: Send) -> None:
        await send_result(message, greeting, send)

    app = OverriddenResponses(LibraryUpstream().app("legacy"), {"initialize": greet})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        profile = await upstreams.proxy.get_profile(UPSTREAM_NAME, principal=ALICE)

    assert profile is not None
    assert profile.server_info == {"name": "odd", "version": "1"}


@parametrize_eras
async def test_lists_are_whole_however_many_pages_they_have(era: str) -> None:
    async with serving_proxy(LibraryUpstream(books=5), era) as (proxy, _):
        books = await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)
        templates = await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCE_TEMPLATES, principal=ALICE)
        prompts = await proxy.list_entries(UPSTREAM_NAME, Listing.PROMPTS, principal=ALICE)
        tools = await proxy.list_entries(UPSTREAM_NAME, Listing.TOOLS, principal=ALICE)

    assert [book["uri"] for book in books] == [f"book://{number}" for number in range(1, 6)]
    assert [template["uriTemplate"] for template in templates] == ["book://{number}"]
    assert [prompt["name"] for prompt in prompts] == ["review"]
    assert [tool["name"] for tool in tools] == ["talk"]


@parametrize_eras
async def test_a_list_that_goes_round_in_circles_ends(era: str) -> None:
    pages = 0

    async def circle(message: dict[str, Any], send: Send) -> None:
        nonlocal pages
        pages += 1
        entry = {"uri": f"book://{pages}", "name": "again", "new": None}
        page: dict[str, Any] = {"resources": [entry, {"name": "no uri"}, 7], "nextCursor": "same"}
        await send_result(message, {**page, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}, send)

    app = OverriddenResponses(LibraryUpstream().app(era), {"resources/list": circle})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        books = await upstreams.proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)

    last = pages  # the list may have been fetched before, when the connection opened
    assert [dict(book) for book in books] == [
        {"uri": f"book://{last - 1}", "name": "again", "new": None},
        {"uri": f"book://{last}", "name": "again", "new": None},
    ]


@parametrize_eras
async def test_a_list_that_ends_with_an_empty_cursor_is_whole_and_not_counted_as_cut(era: str) -> None:
    async def end_with_empty_cursor(message: dict[str, Any], send: Send) -> None:
        page = {"resources": [{"uri": BOOK_URI, "name": "one"}], "nextCursor": ""}
        await send_result(message, {**page, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}, send)

    app = OverriddenResponses(LibraryUpstream().app(era), {"resources/list": end_with_empty_cursor})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        books = await upstreams.proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert [dict(book) for book in books] == [{"uri": BOOK_URI, "name": "one"}]
    assert info.faults == {}


@parametrize_eras
async def test_a_list_of_endless_size_is_cut(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "LIST_BYTES_MAX", 600)
    async with serving_proxy(LibraryUpstream(books=20), era) as (proxy, _):
        books = await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)

    assert 0 < len(books) < 20


@parametrize_eras
async def test_an_unsupported_list_is_empty_and_not_requested(era: str) -> None:
    asked: list[str] = []

    async def greet(message: dict[str, Any], send: Send) -> None:
        said: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "bare", "version": "1"}}
        versions = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "resultType": "complete"}
        await send_result(message, {**said, **versions, "ttlMs": 0, "cacheScope": "private"}, send)

    async def note(message: dict[str, Any], send: Send) -> None:
        asked.append(message["method"])
        await send_result(message, {"prompts": []}, send)

    spoilings = {"server/discover" if era == "modern" else "initialize": greet, "prompts/list": note}
    app = OverriddenResponses(LibraryUpstream().app(era), spoilings)
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        assert await upstreams.proxy.list_entries(UPSTREAM_NAME, Listing.PROMPTS, principal=ALICE) == []

    assert asked == []


@parametrize_eras
@pytest.mark.usefixtures("unreachable_at_once")
async def test_lists_and_profile_outlive_the_connection(era: str) -> None:
    async with serving_proxy(LibraryUpstream(), era) as (proxy, server):
        before = await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)
        profile = await proxy.get_profile(UPSTREAM_NAME, principal=ALICE)
        await server.kill_server()
        with pytest.raises(Unavailable):
            await proxy.send_request(UPSTREAM_NAME, "resources/read", {"uri": BOOK_URI}, principal=ALICE)

        assert await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE) == before
        assert await proxy.get_profile(UPSTREAM_NAME, principal=ALICE) == profile
