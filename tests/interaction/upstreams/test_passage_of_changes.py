"""What upstreams tell unasked, as a gateway passes it on: lists that changed and resources that are watched."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import UpstreamChange, Listing, UpstreamErrorResponse
from ringback.runner import link as link_module
from ringback.runner import passage as passage_module
from ringback.runner import watching as watching_module
from tests.support.library import BOOK, NAME, Library
from tests.support.passages import both_eras, eventually, next_of, passing
from tests.support.upstreams import (
    WAIT_SECONDS,
    Send,
    Spoiled,
    answer_json,
    answering,
    free_port,
    http_config,
    opened,
    serving,
)

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@both_eras
async def test_a_list_that_changed_is_told_and_asked_for_again(era: str) -> None:
    library = Library()
    async with passing(library, era) as (passage, _), passage.subscribe_resource(NAME, BOOK):
        with passage.subscribe_changes(NAME) as changes:
            library.books.append("book://new")
            library.prompts = [*library.prompts, types.Prompt(name="summary")]
            await library.tell_of_lists()
            told = {(await next_of(changes)).listing, (await next_of(changes)).listing}
            books = await passage.list_entries(NAME, Listing.RESOURCES)
            prompts = await passage.list_entries(NAME, Listing.PROMPTS)

    assert told == {Listing.RESOURCES, Listing.PROMPTS}
    assert books[-1]["uri"] == "book://new"
    assert [prompt["name"] for prompt in prompts] == ["review", "summary"]


@both_eras
async def test_a_watched_resource_that_changes_is_heard_by_everybody_over_one_subscription(era: str) -> None:
    library = Library()
    async with passing(library, era) as (passage, _):
        async with passage.subscribe_resource(NAME, BOOK), passage.subscribe_resource(NAME, BOOK):
            with passage.subscribe_changes(NAME) as one, passage.subscribe_changes(NAME) as other:
                await library.change(BOOK)

                assert await next_of(one) == await next_of(other) == UpstreamChange(upstream=NAME, uri=BOOK)
        if era == "legacy":
            assert (library.subscribed, library.unsubscribed) == ([BOOK], [BOOK])


@both_eras
async def test_a_subscription_is_made_anew_on_the_next_connection_and_then_counts_as_a_change(era: str) -> None:
    library, port = Library(), free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with AsyncExitStack() as servers, opened(config) as upstreams:
        first = await servers.enter_async_context(serving(library.app(era), port=port))
        passage = upstreams.proxy
        await eventually(passage, NAME, Listing.PROMPTS)
        async with passage.subscribe_resource(NAME, BOOK):
            with passage.subscribe_changes(NAME) as changes:
                await first.kill()
                with pytest.raises(Unavailable):
                    await passage.send_request(NAME, "resources/read", {"uri": BOOK})  # somebody notices
                await servers.enter_async_context(serving(library.app(era), port=port))

                assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=BOOK)
                await library.change(BOOK)
                assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=BOOK)


@both_eras
async def test_a_subscription_that_could_be_made_only_later_counts_as_a_change(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching_module, "SETTLE_SECONDS", 0.01)
    port = free_port()
    config = http_config(f"http://127.0.0.1:{port}/mcp", name=NAME)
    async with AsyncExitStack() as servers, opened(config) as upstreams:
        passage = upstreams.proxy
        with passage.subscribe_changes(NAME) as changes:
            async with passage.subscribe_resource(NAME, BOOK):
                await servers.enter_async_context(serving(Library().app(era), port=port))

                assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=BOOK)


@both_eras
async def test_a_part_of_a_watched_resource_stands_for_the_whole(era: str) -> None:
    library = Library()
    async with passing(library, era) as (passage, _), passage.subscribe_resource(NAME, BOOK):
        with passage.subscribe_changes(NAME) as changes:
            await library.change(f"{BOOK}/chapter")
            if era == "legacy":
                assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=f"{BOOK}/chapter")
                assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=BOOK)
            await library.change(BOOK)
            assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=BOOK)


@both_eras
async def test_only_so_many_resources_of_an_upstream_are_watched(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching_module, "WATCHED_MAX", 1)
    async with passing(Library(), era) as (passage, _), passage.subscribe_resource(NAME, BOOK):
        with pytest.raises(Exception, match="watched already"):
            async with passage.subscribe_resource(NAME, "book://2"):
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
        with upstreams.proxy.subscribe_changes(NAME) as changes:
            async with upstreams.proxy.subscribe_resource(NAME, BOOK):
                library.end_streams()

                assert await next_of(changes) == UpstreamChange(upstream=NAME, uri=BOOK)
    assert library.subscribed[:2] == [BOOK, BOOK]


@both_eras
async def test_what_changed_while_no_stream_was_open_is_found_by_looking(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LISTEN_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(passage_module, "AGE_SECONDS_MAX", -1.0)
    library = Library()
    async with passing(library, era) as (passage, _):
        await passage.list_entries(NAME, Listing.RESOURCES)
        with passage.subscribe_changes(NAME) as changes:
            library.books.append("book://new")
            library.end_streams()
            if era == "legacy":
                await passage.list_entries(NAME, Listing.RESOURCES)  # an old list is asked for again, and compared

            assert await next_of(changes) == UpstreamChange(upstream=NAME, listing=Listing.RESOURCES)


@both_eras
async def test_whoever_watches_what_the_upstream_refuses_is_told_so(era: str) -> None:
    async def refuse(message: dict[str, Any], send: Send) -> None:
        refusal = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "not this one"}}
        await answer_json(send, refusal)

    app = Spoiled(Library().app(era), {"subscriptions/listen" if era == "modern" else "resources/subscribe": refuse})
    async with serving(app) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with pytest.raises(UpstreamErrorResponse) as refused:
            async with upstreams.proxy.subscribe_resource(NAME, BOOK):
                pass

    assert refused.value.error["message"] == "not this one"


async def test_a_resource_can_be_watched_again_although_whoever_left_last_was_cut_off_while_leaving() -> None:
    library = Library()
    async with passing(library, "legacy") as (passage, _):
        watching = passage.subscribe_resource(NAME, BOOK)
        await watching.__aenter__()
        leaving = asyncio.create_task(watching.__aexit__(None, None, None))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving

        async with asyncio.timeout(WAIT_SECONDS):
            async with passage.subscribe_resource(NAME, BOOK):
                pass
    assert library.subscribed == [BOOK, BOOK]
