"""Change notifications that a gateway forwards: changed lists and subscribed resources."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any, Final

import mcp_types as types
import pytest

from ringback.domain.errors import QuotaExceeded, Unavailable
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamErrorResponse
from ringback.protocol import tasks as protocol_tasks
from ringback.upstreams import proxy as passage_module
from ringback.upstreams import session as link_module
from ringback.upstreams.catalog import catalog_refresher as refresher_module
from ringback.upstreams.subscriptions import resource_subscriptions
from scripts.ports import free_port
from tests.support.event_upstream import EventUpstream
from tests.support.examples import ALICE, BOB
from tests.support.library_upstream import BOOK_URI, UPSTREAM_NAME, LibraryUpstream
from tests.support.proxies import list_when_connected, next_change, parametrize_eras, serving_proxy
from tests.support.upstreams import (
    WAIT_SECONDS,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_http_config,
    open_upstreams,
    respond_with,
    send_json,
    send_response,
    serving,
    wait_until_true,
)

LISTEN_METHOD: Final = "subscriptions/listen"

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@parametrize_eras
async def test_a_changed_list_is_notified_and_read_again(era: str) -> None:
    library = LibraryUpstream()
    async with (
        serving_proxy(library, era) as (proxy, _),
        proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
    ):
        with proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            library.books.append("book://new")
            library.prompts = [*library.prompts, types.Prompt(name="summary")]
            await library.publish_list_changes()
            changed_listings = {(await next_change(changes)).listing, (await next_change(changes)).listing}
            books = await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)
            prompts = await proxy.list_entries(UPSTREAM_NAME, Listing.PROMPTS, principal=ALICE)

    assert changed_listings == {Listing.RESOURCES, Listing.PROMPTS}
    assert books[-1]["uri"] == "book://new"
    assert [prompt["name"] for prompt in prompts] == ["review", "summary"]


@parametrize_eras
async def test_a_change_of_a_subscribed_resource_reaches_every_subscriber_over_one_subscription(era: str) -> None:
    library = LibraryUpstream()
    async with serving_proxy(library, era) as (proxy, _):
        async with (
            proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
            proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
        ):
            with (
                proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as one,
                proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as other,
            ):
                await library.publish_resource_change(BOOK_URI)

                assert (
                    await next_change(one)
                    == await next_change(other)
                    == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)
                )
        if era == "legacy":
            assert (library.subscribed, library.unsubscribed) == ([BOOK_URI], [BOOK_URI])


@parametrize_eras
async def test_a_subscription_is_made_anew_on_the_next_connection_and_then_counts_as_a_change(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, port = LibraryUpstream(), free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    async with AsyncExitStack() as servers, open_upstreams(config) as upstreams:
        first = await servers.enter_async_context(serving(library.app(era), port=port))
        proxy = upstreams.proxy
        await list_when_connected(proxy, UPSTREAM_NAME, Listing.PROMPTS)
        async with proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
            with proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
                await first.kill_server()
                monkeypatch.setattr(passage_module, "CONNECT_WAIT_SECONDS", 0.0)  # no server listens
                with pytest.raises(Unavailable):
                    await proxy.send_request(
                        UPSTREAM_NAME, "resources/read", {"uri": BOOK_URI}, principal=ALICE
                    )  # finds the loss
                await servers.enter_async_context(serving(library.app(era), port=port))

                assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)
                await library.publish_resource_change(BOOK_URI)
                assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)


@parametrize_eras
async def test_a_subscription_that_could_be_made_only_later_counts_as_a_change(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_subscriptions, "SUBSCRIBE_WAIT_SECONDS", 0.01)
    port = free_port()
    config = make_http_config(f"http://127.0.0.1:{port}/mcp", name=UPSTREAM_NAME)
    async with AsyncExitStack() as servers, open_upstreams(config) as upstreams:
        proxy = upstreams.proxy
        with proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            async with proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
                await servers.enter_async_context(serving(LibraryUpstream().app(era), port=port))

                assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)


@parametrize_eras
async def test_a_part_of_a_subscribed_resource_counts_as_the_whole(era: str) -> None:
    library = LibraryUpstream()
    async with (
        serving_proxy(library, era) as (proxy, _),
        proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
    ):
        with proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            await library.publish_resource_change(f"{BOOK_URI}/chapter")
            if era == "legacy":
                assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=f"{BOOK_URI}/chapter")
                assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)
            await library.publish_resource_change(BOOK_URI)
            assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)


@parametrize_eras
async def test_the_subscribed_resources_of_an_upstream_are_limited(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_subscriptions, "SUBSCRIPTIONS_PER_UPSTREAM_MAX", 1)
    async with (
        serving_proxy(LibraryUpstream(), era) as (proxy, _),
        proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
    ):
        with pytest.raises(Exception, match="have subscriptions already"):
            async with proxy.subscribe_resource(UPSTREAM_NAME, "book://2", principal=ALICE):
                pass


async def test_one_principal_leaves_room_for_the_resources_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_subscriptions, "SUBSCRIPTIONS_PER_PRINCIPAL_MAX", 1)
    async with (
        serving_proxy(LibraryUpstream(), "modern") as (proxy, _),
        proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
    ):
        with pytest.raises(QuotaExceeded, match="subscriptions of yours already"):
            async with proxy.subscribe_resource(UPSTREAM_NAME, "book://2", principal=ALICE):
                pass
        async with (
            proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=BOB),
            proxy.subscribe_resource(UPSTREAM_NAME, "book://2", principal=ALICE),
        ):
            pass


@parametrize_eras
async def test_a_forgotten_session_is_noticed_while_a_resource_is_subscribed(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a legacy session only a ping notices it; on 2026-07-28 the stream itself ends."""
    monkeypatch.setattr(resource_subscriptions, "PING_SECONDS", 0.05)
    library = LibraryUpstream()
    forgotten = respond_with(404, "application/json", b"{}")
    app = OverriddenResponses(library.app(era), {"ping": forgotten})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        with upstreams.proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            async with upstreams.proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
                library.close_listen_streams()

                assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)
    assert library.subscribed[:2] == [BOOK_URI, BOOK_URI]


@pytest.mark.parametrize("method", ["resources/subscribe", "ping"])
async def test_a_resource_is_subscribed_again_if_its_upstream_never_answers(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that still stands may lead nowhere. No change arrived any more, without an error."""
    monkeypatch.setattr(resource_subscriptions, "PING_SECONDS", 0.05)
    monkeypatch.setattr(protocol_tasks, "POLL_TIMEOUT_SECONDS", 0.1)
    library, may_end, overrides = LibraryUpstream(), asyncio.Event(), dict[str, ResponseOverride]()

    async def stay_silent_once(_: dict[str, Any], send: Send) -> None:
        del overrides[method]
        await may_end.wait()
        await send_response(send, 503, "text/plain", b"too late")

    overrides[method] = stay_silent_once
    app = OverriddenResponses(library.app("legacy"), overrides)
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        with upstreams.proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            async with upstreams.proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
                change = await next_change(changes)
                may_end.set()

    assert change == UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)
    assert library.subscribed[-1] == BOOK_URI


@parametrize_eras
async def test_changes_without_an_open_stream_are_found_by_polling(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "RELISTEN_SECONDS", 0.01)
    monkeypatch.setattr(passage_module, "LIST_AGE_SECONDS_MAX", -1.0)
    library = LibraryUpstream()
    async with serving_proxy(library, era) as (proxy, _):
        await proxy.list_entries(UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE)
        with proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            library.books.append("book://new")
            library.close_listen_streams()
            if era == "legacy":
                await proxy.list_entries(
                    UPSTREAM_NAME, Listing.RESOURCES, principal=ALICE
                )  # an old list is asked for again, and compared

            assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, listing=Listing.RESOURCES)


async def test_lists_are_followed_again_after_a_stream_for_their_changes_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "RELISTEN_SECONDS", 0.01)
    library, overrides = LibraryUpstream(), dict[str, ResponseOverride]()

    async def refuse_once(_: dict[str, Any], send: Send) -> None:
        del overrides[LISTEN_METHOD]
        library.books.append("book://new")
        await send_response(send, 503, "text/plain", b"restarting")

    app = OverriddenResponses(library.app("modern"), overrides)
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        with upstreams.proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            await wait_until_true(lambda: "prompts/list" in library.list_requests)  # fetched once the stream is open
            overrides[LISTEN_METHOD] = refuse_once
            library.close_listen_streams()

            assert await next_change(changes) == UpstreamChange(upstream=UPSTREAM_NAME, listing=Listing.RESOURCES)


async def test_the_lists_of_an_upstream_that_never_acknowledges_a_stream_for_changes_are_fetched_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy that keeps responses until they are whole passes no acknowledgement on."""
    monkeypatch.setattr(refresher_module, "ACKNOWLEDGE_TIMEOUT_SECONDS", 0.01)
    library, over = LibraryUpstream(), asyncio.Event()

    async def keep(_: dict[str, Any], send: Send) -> None:
        await over.wait()
        await send_response(send, 503, "text/plain", b"over")

    app = OverriddenResponses(library.app("modern"), {LISTEN_METHOD: keep})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)):
        await wait_until_true(lambda: "prompts/list" in library.list_requests)
        over.set()


async def test_event_types_are_followed_again_after_a_stream_for_their_changes_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refresher_module, "RELISTEN_SECONDS", 0.01)
    upstream = EventUpstream()
    async with (
        serving(upstream.app("modern")) as server,
        open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        with upstreams.proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            await wait_until_true(lambda: upstream.listen_count == 1)
            upstream.add_event_type("pr.closed")
            await next_change(changes)  # the stream is open at both ends
            upstream.listen_refusals = 1
            server.drop_connections()

            await wait_until_true(lambda: upstream.listen_count == 2)


@parametrize_eras
async def test_a_subscriber_gets_the_upstreams_rejection_of_its_subscription(era: str) -> None:
    async def refuse(message: dict[str, Any], send: Send) -> None:
        refusal = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "not this one"}}
        await send_json(send, refusal)

    app = OverriddenResponses(
        LibraryUpstream().app(era), {LISTEN_METHOD if era == "modern" else "resources/subscribe": refuse}
    )
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        with pytest.raises(UpstreamErrorResponse) as refused:
            async with upstreams.proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
                pass

    assert refused.value.error["message"] == "not this one"


@pytest.mark.parametrize("accepted", [None, True, 1])
async def test_a_malformed_acknowledgement_accepts_no_resource(accepted: object) -> None:
    async def acknowledge(message: dict[str, Any], send: Send) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        params = {"notifications": {"resourceSubscriptions": accepted}, "_meta": meta}
        method = "notifications/subscriptions/acknowledged"
        sent = [
            {"jsonrpc": "2.0", "method": method, "params": params},
            {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete"}},
        ]
        body = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in sent)
        await respond_with(200, "text/event-stream", body)(message, send)

    app = OverriddenResponses(LibraryUpstream().app("modern"), {"subscriptions/listen": acknowledge})
    async with serving(app) as server, open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams:
        with pytest.raises(UpstreamErrorResponse) as refused:
            async with upstreams.proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
                pass

    assert "does not send updates" in refused.value.error["message"]


async def test_a_resource_can_be_subscribed_again_after_an_interrupted_unsubscribe() -> None:
    library = LibraryUpstream()
    async with serving_proxy(library, "legacy") as (proxy, _):
        subscription = proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE)
        await subscription.__aenter__()
        leaving = asyncio.create_task(subscription.__aexit__(None, None, None))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving

        async with asyncio.timeout(WAIT_SECONDS):
            async with proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE):
                pass
    assert library.subscribed == [BOOK_URI, BOOK_URI]
