"""What an upstream says of itself, as a gateway passes it on: its profile and its lists, whole, in bounds, and kept."""

from typing import Any

import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import Listing
from ringback.runner import listing as listing_module
from tests.support.library import BOOK, INSTRUCTIONS, NAME, Library
from tests.support.passages import both_eras, passing
from tests.support.upstreams import Send, Spoiled, http_config, opened, respond, serving

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@both_eras
async def test_an_upstream_is_shown_as_it_presents_itself(era: str) -> None:
    async with passing(Library(), era) as (passage, _):
        profile = await passage.get_profile(NAME)

    assert profile is not None
    assert profile.protocol_version == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert profile.instructions == INSTRUCTIONS
    assert profile.server_info["version"] == "7"
    assert set(profile.capabilities) >= {"tools", "resources", "prompts", "completions"}


@both_eras
async def test_what_the_sdk_does_not_know_of_a_profile_is_kept(era: str) -> None:
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
        await respond(message, greeting, send)

    method = "server/discover" if era == "modern" else "initialize"
    app = Spoiled(Library().app(era), {method: greet})
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        profile = await upstreams.proxy.get_profile(NAME)

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
        await respond(message, greeting, send)

    app = Spoiled(Library().app("legacy"), {"initialize": greet})
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        profile = await upstreams.proxy.get_profile(NAME)

    assert profile is not None
    assert profile.server_info == {"name": "odd", "version": "1"}


@both_eras
async def test_lists_are_whole_however_many_pages_they_have(era: str) -> None:
    async with passing(Library(books=5), era) as (passage, _):
        books = await passage.list_entries(NAME, Listing.RESOURCES)
        templates = await passage.list_entries(NAME, Listing.RESOURCE_TEMPLATES)
        prompts = await passage.list_entries(NAME, Listing.PROMPTS)
        tools = await passage.list_entries(NAME, Listing.TOOLS)

    assert [book["uri"] for book in books] == [f"book://{number}" for number in range(1, 6)]
    assert [template["uriTemplate"] for template in templates] == ["book://{number}"]
    assert [prompt["name"] for prompt in prompts] == ["review"]
    assert [tool["name"] for tool in tools] == ["talk"]


@both_eras
async def test_a_list_that_goes_round_in_circles_ends(era: str) -> None:
    pages = 0

    async def circle(message: dict[str, Any], send: Send) -> None:
        nonlocal pages
        pages += 1
        entry = {"uri": f"book://{pages}", "name": "again", "new": None}
        page: dict[str, Any] = {"resources": [entry, {"name": "no uri"}, 7], "nextCursor": "same"}
        await respond(message, {**page, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}, send)

    app = Spoiled(Library().app(era), {"resources/list": circle})
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        books = await upstreams.proxy.list_entries(NAME, Listing.RESOURCES)

    assert [dict(book) for book in books] == [
        {"uri": "book://1", "name": "again", "new": None},
        {"uri": "book://2", "name": "again", "new": None},
    ]


@both_eras
async def test_a_list_of_endless_size_is_cut(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "LIST_BYTES_MAX", 600)
    async with passing(Library(books=20), era) as (passage, _):
        books = await passage.list_entries(NAME, Listing.RESOURCES)

    assert 0 < len(books) < 20


@both_eras
async def test_what_an_upstream_does_not_offer_is_empty_and_not_asked_for(era: str) -> None:
    asked: list[str] = []

    async def greet(message: dict[str, Any], send: Send) -> None:
        said: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "bare", "version": "1"}}
        versions = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "resultType": "complete"}
        await respond(message, {**said, **versions, "ttlMs": 0, "cacheScope": "private"}, send)

    async def note(message: dict[str, Any], send: Send) -> None:
        asked.append(message["method"])
        await respond(message, {"prompts": []}, send)

    spoilings = {"server/discover" if era == "modern" else "initialize": greet, "prompts/list": note}
    app = Spoiled(Library().app(era), spoilings)
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        assert await upstreams.proxy.list_entries(NAME, Listing.PROMPTS) == []

    assert asked == []


@both_eras
async def test_lists_and_profile_outlive_the_connection(era: str) -> None:
    async with passing(Library(), era) as (passage, server):
        before = await passage.list_entries(NAME, Listing.RESOURCES)
        profile = await passage.get_profile(NAME)
        await server.kill()
        with pytest.raises(Unavailable):
            await passage.send_request(NAME, "resources/read", {"uri": BOOK})

        assert await passage.list_entries(NAME, Listing.RESOURCES) == before
        assert await passage.get_profile(NAME) == profile
