"""Upstreams as a gateway passes them on: profiles, lists, requests, and what they tell unasked; in both eras."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
import pytest

from ringback.domain.errors import InvalidRequest, Unavailable, UnknownUpstream
from ringback.domain.upstreams import Change, Listing, Passage, UpstreamRefused
from ringback.runner import link as link_module
from ringback.runner import listing as listing_module
from ringback.runner import passage as passage_module
from ringback.runner import watching as watching_module
from ringback.runner.upstreams import Upstreams
from tests.support.library import BOOK, ERAS, INSTRUCTIONS, NAME, Library
from tests.support.upstreams import (
    WAIT_SECONDS,
    HttpServer,
    Send,
    Spoiled,
    answer_json,
    answering,
    free_port,
    http_config,
    opened,
    python_config,
    respond,
    serving,
)

both_eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - pytest calls it
    """An upstream that is away is not waited for as long as it would be."""
    monkeypatch.setattr(passage_module, "REACH_SECONDS", 0.2)
    monkeypatch.setattr(watching_module, "AGAIN_SECONDS", 0.05)


@asynccontextmanager
async def passing(library: Library, era: str) -> AsyncGenerator[tuple[Passage, HttpServer, Upstreams]]:
    async with serving(library.app(era)) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        await eventually(upstreams.passage, NAME, Listing.PROMPTS)
        yield upstreams.passage, server, upstreams


async def eventually(passage: Passage, upstream: str, listing: Listing) -> Sequence[Mapping[str, Any]]:
    """The list, once the upstream was reached; it may need longer than anybody here is patient."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            with contextlib.suppress(Unavailable):
                return await passage.listed(upstream, listing)


async def next_of(changes: AsyncIterator[Change]) -> Change:
    return await asyncio.wait_for(anext(changes), WAIT_SECONDS)


@both_eras
async def test_an_upstream_is_shown_as_it_presents_itself(era: str) -> None:
    async with passing(Library(), era) as (passage, _, _):
        profile = await passage.profile(NAME)

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
        profile = await upstreams.passage.profile(NAME)

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
        profile = await upstreams.passage.profile(NAME)

    assert profile is not None
    assert profile.server_info == {"name": "odd", "version": "1"}


@both_eras
async def test_lists_are_whole_however_many_pages_they_have(era: str) -> None:
    async with passing(Library(books=5), era) as (passage, _, _):
        books = await passage.listed(NAME, Listing.RESOURCES)
        templates = await passage.listed(NAME, Listing.RESOURCE_TEMPLATES)
        prompts = await passage.listed(NAME, Listing.PROMPTS)
        tools = await passage.listed(NAME, Listing.TOOLS)

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
        books = await upstreams.passage.listed(NAME, Listing.RESOURCES)

    assert [dict(book) for book in books] == [
        {"uri": "book://1", "name": "again", "new": None},
        {"uri": "book://2", "name": "again", "new": None},
    ]


@both_eras
async def test_a_list_of_endless_size_is_cut(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "LIST_BYTES_MAX", 600)
    async with passing(Library(books=20), era) as (passage, _, _):
        books = await passage.listed(NAME, Listing.RESOURCES)

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
        assert await upstreams.passage.listed(NAME, Listing.PROMPTS) == []

    assert asked == []


@both_eras
async def test_lists_and_profile_outlive_the_connection(era: str) -> None:
    async with passing(Library(), era) as (passage, server, _):
        before = await passage.listed(NAME, Listing.RESOURCES)
        profile = await passage.profile(NAME)
        await server.kill()
        with pytest.raises(Unavailable):
            await passage.ask(NAME, "resources/read", {"uri": BOOK})

        assert await passage.listed(NAME, Listing.RESOURCES) == before
        assert await passage.profile(NAME) == profile


@both_eras
async def test_requests_are_passed_on_and_answers_come_back_as_they_are(era: str) -> None:
    async with passing(Library(), era) as (passage, _, _):
        read = await passage.ask(NAME, "resources/read", {"uri": BOOK})
        prompt = await passage.ask(NAME, "prompts/get", {"name": "review", "arguments": {"of": "me"}})
        completed = await passage.ask(
            NAME,
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "of", "value": ""}},
        )

    assert read["contents"][0]["text"] == "Once …"
    assert prompt["messages"][0]["content"]["text"] == "review: {'of': 'me'}"
    assert completed["completion"]["values"] == ["1", "2"]


@both_eras
async def test_a_refusal_is_passed_on_as_it_is(era: str) -> None:
    async with passing(Library(), era) as (passage, _, _):
        with pytest.raises(UpstreamRefused) as refused:
            await passage.ask(NAME, "resources/read", {"uri": "book://none"})

    assert refused.value.error == {"code": -32602, "message": "There is no such book.", "data": {"uri": "book://none"}}


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "talk"}), ("logging/setLevel", {"level": "debug"}), ("resources/read", {"uri": 7})],
)
@both_eras
async def test_nothing_else_is_passed_on(era: str, method: str, params: dict[str, Any]) -> None:
    async with passing(Library(), era) as (passage, _, _):
        with pytest.raises(InvalidRequest):
            await passage.ask(NAME, method, params)


@both_eras
async def test_an_upstream_that_is_not_configured_is_unknown(era: str) -> None:
    async with passing(Library(), era) as (passage, _, _):
        with pytest.raises(UnknownUpstream):
            await passage.profile("nobody")
        with pytest.raises(UnknownUpstream):
            await passage.listed("nobody", Listing.TOOLS)
        with pytest.raises(UnknownUpstream):
            await passage.ask("nobody", "prompts/get", {"name": "review"})
        with pytest.raises(UnknownUpstream):
            passage.changes("nobody")
        with pytest.raises(UnknownUpstream):
            passage.watching("nobody", BOOK)


# -- what is told unasked ---------------------------------------------------------------------------------------------------


@both_eras
async def test_a_list_that_changed_is_told_and_asked_for_again(era: str) -> None:
    library = Library()
    async with passing(library, era) as (passage, _, _), passage.watching(NAME, BOOK):
        with passage.changes(NAME) as changes:
            library.books.append("book://new")
            library.prompts = [*library.prompts, types.Prompt(name="summary")]
            await library.tell_of_lists()
            told = {(await next_of(changes)).listing, (await next_of(changes)).listing}
            books = await passage.listed(NAME, Listing.RESOURCES)
            prompts = await passage.listed(NAME, Listing.PROMPTS)

    assert told == {Listing.RESOURCES, Listing.PROMPTS}
    assert books[-1]["uri"] == "book://new"
    assert [prompt["name"] for prompt in prompts] == ["review", "summary"]


@both_eras
async def test_a_watched_resource_that_changes_is_heard_by_everybody_over_one_subscription(era: str) -> None:
    library = Library()
    async with passing(library, era) as (passage, _, _):
        async with passage.watching(NAME, BOOK), passage.watching(NAME, BOOK):
            with passage.changes(NAME) as one, passage.changes(NAME) as other:
                await library.change(BOOK)

                assert await next_of(one) == await next_of(other) == Change(upstream=NAME, uri=BOOK)
        if era == "legacy":
            assert (library.subscribed, library.unsubscribed) == ([BOOK], [BOOK])


@both_eras
async def test_a_subscription_is_made_anew_on_the_next_connection_and_then_counts_as_a_change(era: str) -> None:
    library, port = Library(), free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with AsyncExitStack() as servers, opened(config) as upstreams:
        first = await servers.enter_async_context(serving(library.app(era), port=port))
        passage = upstreams.passage
        await eventually(passage, NAME, Listing.PROMPTS)
        async with passage.watching(NAME, BOOK):
            with passage.changes(NAME) as changes:
                await first.kill()
                with pytest.raises(Unavailable):
                    await passage.ask(NAME, "resources/read", {"uri": BOOK})  # somebody notices
                await servers.enter_async_context(serving(library.app(era), port=port))

                assert await next_of(changes) == Change(upstream=NAME, uri=BOOK)
                await library.change(BOOK)
                assert await next_of(changes) == Change(upstream=NAME, uri=BOOK)


@both_eras
async def test_a_subscription_that_could_be_made_only_later_counts_as_a_change(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching_module, "SETTLE_SECONDS", 0.01)
    port = free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with AsyncExitStack() as servers, opened(config) as upstreams:
        passage = upstreams.passage
        with passage.changes(NAME) as changes:
            async with passage.watching(NAME, BOOK):
                await servers.enter_async_context(serving(Library().app(era), port=port))

                assert await next_of(changes) == Change(upstream=NAME, uri=BOOK)


@both_eras
async def test_a_part_of_a_watched_resource_stands_for_the_whole(era: str) -> None:
    library = Library()
    async with passing(library, era) as (passage, _, _), passage.watching(NAME, BOOK):
        with passage.changes(NAME) as changes:
            await library.change(f"{BOOK}/chapter")
            if era == "legacy":
                assert await next_of(changes) == Change(upstream=NAME, uri=f"{BOOK}/chapter")
                assert await next_of(changes) == Change(upstream=NAME, uri=BOOK)
            await library.change(BOOK)
            assert await next_of(changes) == Change(upstream=NAME, uri=BOOK)


@both_eras
async def test_only_so_many_resources_of_an_upstream_are_watched(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching_module, "WATCHED_MAX", 1)
    async with passing(Library(), era) as (passage, _, _), passage.watching(NAME, BOOK):
        with pytest.raises(Exception, match="watched already"):
            async with passage.watching(NAME, "book://2"):
                pass


@both_eras
async def test_a_session_that_the_upstream_has_forgotten_is_noticed_while_something_is_watched(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session of before 2026-07-28 nothing else would tell; on 2026-07-28 the stream itself ends."""
    monkeypatch.setattr(watching_module, "PING_SECONDS", 0.05)
    library = Library()
    forgotten = answering(404, "application/json", b"{}")
    app = Spoiled(library.app(era), {"ping": forgotten})
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with upstreams.passage.changes(NAME) as changes:
            async with upstreams.passage.watching(NAME, BOOK):
                library.end_streams()

                assert await next_of(changes) == Change(upstream=NAME, uri=BOOK)
    assert library.subscribed[:2] == [BOOK, BOOK]


@both_eras
async def test_what_changed_while_no_stream_was_open_is_found_by_looking(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LISTEN_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(passage_module, "AGE_SECONDS_MAX", -1.0)
    library = Library()
    async with passing(library, era) as (passage, _, _):
        await passage.listed(NAME, Listing.RESOURCES)
        with passage.changes(NAME) as changes:
            library.books.append("book://new")
            library.end_streams()
            if era == "legacy":
                await passage.listed(NAME, Listing.RESOURCES)  # an old list is asked for again, and compared

            assert await next_of(changes) == Change(upstream=NAME, listing=Listing.RESOURCES)


@both_eras
async def test_whoever_watches_what_the_upstream_refuses_is_told_so(era: str) -> None:
    async def refuse(message: dict[str, Any], send: Send) -> None:
        refusal = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "not this one"}}
        await answer_json(send, refusal)

    app = Spoiled(Library().app(era), {"subscriptions/listen" if era == "modern" else "resources/subscribe": refuse})
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with pytest.raises(UpstreamRefused) as refused:
            async with upstreams.passage.watching(NAME, BOOK):
                pass

    assert refused.value.error["message"] == "not this one"


async def test_a_resource_can_be_watched_again_although_whoever_left_last_was_cut_off_while_leaving() -> None:
    library = Library()
    async with passing(library, "legacy") as (passage, _, _):
        watching = passage.watching(NAME, BOOK)
        await watching.__aenter__()
        leaving = asyncio.create_task(watching.__aexit__(None, None, None))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving

        async with asyncio.timeout(WAIT_SECONDS):
            async with passage.watching(NAME, BOOK):
                pass
    assert library.subscribed == [BOOK, BOOK]


async def test_a_server_on_a_pipe_is_passed_on_as_it_is() -> None:
    async with opened(python_config("-m", "mcp_server_git", name="git")) as upstreams:
        tools = await eventually(upstreams.passage, "git", Listing.TOOLS)
        profile = await upstreams.passage.profile("git")
        prompts = await upstreams.passage.listed("git", Listing.PROMPTS)
        with pytest.raises(UpstreamRefused) as refused:
            await upstreams.passage.ask("git", "resources/read", {"uri": BOOK})

    assert "git_log" in [tool["name"] for tool in tools]
    assert profile is not None
    assert profile.server_info["name"] == "mcp-git"
    assert prompts == []
    assert (refused.value.error["code"], refused.value.error["data"]) == (-32602, {"uri": BOOK})
