"""The live list of calls: what changes reaches every viewer, and is read and written once for all of them."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.call_rows import CallFilter
from ringback.domain.errors import QuotaExceeded
from ringback.domain.ids import PortalLinkId
from ringback.domain.principal import ALL_SCOPES, DEFAULT_SCOPES, Caller, Principal
from ringback.services.live import budget, lists
from ringback.services.live.home_listing import HomeContent, HomeListing
from ringback.services.live.listings import CallListing, ListedCalls
from ringback.services.live.lists import LINK_STREAMS_MAX, LIVE_LISTS_MAX, PORTAL_LISTS_MAX, LiveContent
from ringback.services.live.pools import LiveListPool
from tests.support.api_server import serving_api
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service
from tests.support.viewer_browser import ViewerBrowser, sign_in

ALICE = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)
BOB = Caller(principal=Principal("bob"), scopes=DEFAULT_SCOPES)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are read at once: the tests check who gets what."""
    monkeypatch.setattr(lists, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(lists, "REREAD_SECONDS", 0.02)
    monkeypatch.setattr(budget, "WALL_SHARE", 1e6)


def follow(
    service: ServiceUnderTest, caller: Caller, tool: str | None = None, *, link: str | None = None
) -> AsyncGenerator[LiveContent[ListedCalls] | None]:
    return service.services.live_lists.follow_list(
        caller,
        CallListing(call_filter=CallFilter(tool=tool), limit=50),
        seconds=WAIT_SECONDS,
        portal_link_id=None if link is None else PortalLinkId(link),
    )


async def next_page(
    pages: AsyncGenerator[LiveContent[ListedCalls] | None], **expected: Any
) -> LiveContent[ListedCalls]:
    """The next page whose first call has these attributes."""
    async with asyncio.timeout(WAIT_SECONDS):
        async for page in pages:
            if (
                page is not None
                and page.shown.calls
                and expected.items() <= {name: getattr(page.shown.calls[0], name) for name in expected}.items()
            ):
                return page
    raise AssertionError("the list ended")


async def first_page(pages: AsyncGenerator[LiveContent[ListedCalls] | None]) -> LiveContent[ListedCalls]:
    async with asyncio.timeout(WAIT_SECONDS):
        async for page in pages:
            if page is not None:
                return page
    raise AssertionError("the list ended")


async def test_viewers_of_one_list_share_its_pages_and_other_principals_do_not_see_them(
    service: ServiceUnderTest,
) -> None:
    alice = await service.create_client("alice")
    live = service.services.live_lists
    async with AsyncExitStack() as stack:
        first, second, foreign = [
            await stack.enter_async_context(aclosing(follow(service, caller))) for caller in (ALICE, ALICE, BOB)
        ]
        empty = [await first_page(pages) for pages in (first, second, foreign)]
        call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        started = [await next_page(pages, id=call_id) for pages in (first, second)]
        await service.finish_call(call_id)
        ended = [await next_page(pages, status="completed") for pages in (first, second)]

        assert live.list_count == 2
        assert empty[0] is empty[1]
        assert started[0] is started[1]
        assert ended[0] is ended[1]
        assert not any(page.shown.calls for page in empty)
        service.services.lifecycle.begin_shutdown()
        assert [page async for page in foreign] == []

    assert live.list_count == 0
    assert service.quotas.open_stream_count == 0


async def test_a_principal_follows_a_bounded_number_of_lists(service: ServiceUnderTest) -> None:
    async with AsyncExitStack() as stack:
        for number in range(LIVE_LISTS_MAX):
            pages = follow(service, ALICE, tool=str(number))
            await anext(await stack.enter_async_context(aclosing(pages)))
        again = follow(service, ALICE, tool="0")
        await anext(await stack.enter_async_context(aclosing(again)))

        with pytest.raises(QuotaExceeded):
            await anext(follow(service, ALICE, tool="one more"))
        foreign = await stack.enter_async_context(aclosing(follow(service, BOB)))
        await anext(foreign)
        assert service.services.live_lists.list_count == LIVE_LISTS_MAX + 1

    assert service.services.live_lists.list_count == 0


async def test_viewers_of_portal_links_use_up_nothing_of_their_principals_limits_nor_of_other_links(
    service: ServiceUnderTest,
) -> None:
    live = service.services.live_lists
    async with AsyncExitStack() as stack:

        async def enter(**who: str) -> None:
            await anext(await stack.enter_async_context(aclosing(follow(service, ALICE, **who))))

        for number in range(LIVE_LISTS_MAX + 1):
            await enter(link=f"link_{number}", tool=str(number))
        for number in range(LIVE_LISTS_MAX - 1):
            await enter(link="link_0", tool=f"more {number}")
        with pytest.raises(QuotaExceeded):
            await enter(link="link_0", tool="one list more")
        for _ in range(LINK_STREAMS_MAX - 1):
            await enter(link="link_1", tool="1")
        with pytest.raises(QuotaExceeded):
            await enter(link="link_1", tool="1")
        assert service.quotas.count_streams(ALICE.principal) == 0
        for number in range(LIVE_LISTS_MAX):
            await enter(tool=f"own {number}")

        for number in range(PORTAL_LISTS_MAX - 2 * LIVE_LISTS_MAX):
            await enter(link=f"link_late_{number}", tool=f"late {number}")
        with pytest.raises(QuotaExceeded):
            await enter(link="link_latest", tool="one list more")
        await enter(link="link_latest", tool="1")

    assert live.list_count == 0


async def test_the_page_of_a_portal_link_counts_as_its_own(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    link = (await alice.post("/v1/portal-links", json={"client_session_id": "s"})).json()
    browser = await service.create_anonymous_client()
    await browser.get(link["url"])
    limits: list[str | None] = []

    def follow_nothing(*_: object, portal_link_id: str | None, **__: object) -> AsyncGenerator[None]:
        limits.append(portal_link_id)

        async def end() -> AsyncGenerator[None]:
            yield None

        return end()

    service.services.live_lists.follow_list = follow_nothing  # type: ignore[method-assign]
    await browser.get(f"/ui/portal/{link['id']}/calls/live")

    assert limits == [link["id"]]


async def test_a_browser_gets_the_rows_as_escaped_html_until_its_stream_ends(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_MIN", 0.5)
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_SPREAD", 1)
    alice = await service.create_client("alice")
    call_id = (await alice.post("/v1/calls", json=CALL_BODY | {"correlation_id": "<b>c</b>"})).json()["call"]["id"]
    cookies = (await sign_in(service, "alice")).http.cookies

    async with (
        serving_api(service.app) as url,
        httpx.AsyncClient(base_url=url, cookies=dict(cookies), timeout=WAIT_SECONDS) as browser,
        httpx.AsyncClient(base_url=url) as signed_out,
    ):
        live = await browser.get("/ui/calls/live")
        stranger = await signed_out.get("/ui/calls/live")

    assert live.headers["content-type"].startswith("text/event-stream")
    assert live.headers["cache-control"] == "no-store"
    assert live.text.startswith("retry: 1000\n\n")
    assert all(line.startswith(("data: ", "event: ", "retry: ", ":")) for line in live.text.splitlines() if line)
    assert call_id in live.text
    assert "&lt;b&gt;c&lt;/b&gt;" in live.text
    assert "form_token" not in live.text
    assert stranger.status_code == 303


async def test_a_viewer_of_a_list_that_others_follow_already_gets_its_rows_without_a_change(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changed while a browser connected again would be missing on its page until the next change."""
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_MIN", 0.5)
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_SPREAD", 1)
    alice, browser = await service.create_client("alice"), await sign_in(service, "alice")
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]

    async with aclosing(follow(service, ALICE)) as pages:
        await next_page(pages, id=call_id)
        live = await browser.http.get("/ui/calls/live")

    assert call_id in live.text


async def test_lists_and_the_pages_of_sessions_and_home_are_live_and_above_the_limit_they_are_read_again_later(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_MIN", 0.5)
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_SPREAD", 1)
    alice, browser = await service.create_client("alice"), await sign_in(service, "alice")
    body = CALL_BODY | {"client_session_id": "..", "callback": {"url": CALLBACK_URL}}
    call_id = (await alice.post("/v1/calls", json=body)).json()["call"]["id"]
    await service.finish_call(call_id)
    (delivery,) = await service.read_deliveries("alice")
    pages = [
        await browser.open("/deliveries", state="pending"),
        await browser.open("/session", client_session_id=".."),
        *[await browser.open(path) for path in ("", "/webhooks", "/events")],
    ]
    paths = [unescape(found[1]) for page in pages if (found := re.search('sse-connect="/ui([^"]+)"', page.text))]
    listed = (await browser.open("/calls")).text

    live = [await browser.http.get(f"/ui{path}") for path in paths]
    full: LiveListPool[Principal] = LiveListPool(lists_max=0)
    monkeypatch.setattr(service.services.live_lists, "_own", full)
    limited = [await browser.http.get(f"/ui{path}") for path in paths]

    assert paths == [
        *("/deliveries/live?state=pending", "/session/live?client_session_id=.."),
        *("/live?hours=24", "/webhooks/live", "/events/live"),
    ]
    assert "/ui/session?client_session_id=.." in listed
    for responses, retry in ((live, "retry: 1000"), (limited, "retry: 20000")):
        assert [response.status_code for response in responses] == [200] * len(paths)
        assert all(response.text.startswith(retry) and "event: rows\n" in response.text for response in responses)
        shown = [delivery.id, call_id, call_id, delivery.webhook_id, call_id]
        assert [text in response.text for text, response in zip(shown, responses, strict=True)] == [True] * len(paths)


LIVE_PATHS = [
    *("/calls/live?tool=git_log", "/deliveries/live?state=pending", "/webhooks/live?state=active"),
    *("/events/live?client_session_id=s%2F1", "/session/live?client_session_id=s%2F1"),
]


async def read_older(
    service: ServiceUnderTest, browser: ViewerBrowser, path: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The page to which a live list of one row leads, of two calls with their callbacks."""
    monkeypatch.setattr("ringback.ui.pages.live.LIVE_PAGE_SIZE", 1)
    full: LiveListPool[Principal] = LiveListPool(lists_max=0)
    monkeypatch.setattr(service.services.live_lists, "_own", full)
    live = (await browser.http.get(f"/ui{path}")).text
    (older,) = re.findall(r'rel="next" data-key="older" href="([^"]+)"', live)
    page = await browser.http.get(unescape(older))
    assert page.status_code == 200
    return page.text


async def end_calls(service: ServiceUnderTest, client: httpx.AsyncClient) -> list[str]:
    body = CALL_BODY | {"client_session_id": "s/1", "callback": {"url": CALLBACK_URL}}
    ids = [(await client.post("/v1/calls", json=body)).json()["call_id"] for _ in range(2)]
    for call_id in ids:
        await service.finish_call(call_id)
    return ids


@pytest.mark.parametrize("path", LIVE_PATHS)
@pytest.mark.parametrize("principal", ["", "&principal=alice"])
async def test_a_live_list_that_has_more_rows_than_a_page_leads_to_the_older_ones(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch, path: str, principal: str
) -> None:
    older, newest = await end_calls(service, await service.create_client("alice"))
    scopes = ALL_SCOPES if principal else DEFAULT_SCOPES
    browser = await sign_in(service, "root" if principal else "alice", scopes=scopes)
    (*_, webhook) = await service.services.webhooks.list_webhooks(ALICE, position=None, limit=2)

    page = await read_older(service, browser, path + principal, monkeypatch)

    assert (webhook.id if "/webhooks" in path else older) in page
    assert newest not in page


@pytest.mark.parametrize("path", LIVE_PATHS)
async def test_so_does_one_without_authentication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    async with running_service(tmp_path, auth="off") as service:
        client = await service.create_anonymous_client()
        older, newest = await end_calls(service, client)

        page = await read_older(service, ViewerBrowser(client), path, monkeypatch)

    assert older in page or "/webhooks" in path
    assert newest not in page


async def test_a_live_list_without_a_match_says_that_it_goes_on(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page reads a bounded number of rows, so a page without rows may have a next one."""
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", 2)
    monkeypatch.setattr("ringback.ui.pages.live.LIVE_PAGE_SIZE", 1)
    alice, browser = await service.create_client("alice"), await sign_in(service, "alice")
    for _ in range(4):
        await alice.post("/v1/calls", json=CALL_BODY)
    full: LiveListPool[Principal] = LiveListPool(lists_max=0)
    monkeypatch.setattr(service.services.live_lists, "_own", full)

    live = await browser.open("/calls/live", tool="git_status")

    assert "No call matches these filters." in live.text
    assert "Or look at older ones, below." in live.text


@pytest.mark.parametrize("end", ["deletion", "expiry", "revocation of its key", "sign-out"])
async def test_an_open_stream_ends_with_the_link_or_the_sign_in_behind_it_and_shows_nothing_more(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_MIN", 1000.0)
    monkeypatch.setattr("ringback.ui.viewer_checks.CHECK_SECONDS", 0.0)
    key, text = await service.services.api_keys.create_key("alice", name="", scopes=DEFAULT_SCOPES, upstreams=None)
    maker = await service.create_anonymous_client(headers={"Authorization": f"Bearer {text}"})
    link = (await maker.post("/v1/portal-links", json={"expires_in_seconds": 600})).json()
    person, path = await sign_in(service, "alice"), "/ui"
    if end != "sign-out":
        path = f"/ui/portal/{link['id']}"
        await person.http.get(link["url"])
    alice = await service.create_client("alice")

    async with (
        serving_api(service.app) as url,
        asyncio.timeout(WAIT_SECONDS),
        httpx.AsyncClient(headers=cookie_header(person.http), timeout=WAIT_SECONDS) as browser,
        browser.stream("GET", f"{url}{path}/calls/live") as live,
    ):
        lines = live.aiter_lines()
        async for line in lines:
            if line == "event: rows":
                break
        if end == "deletion":
            await maker.delete(f"/v1/portal-links/{link['id']}")
        elif end == "revocation of its key":
            await service.services.api_keys.revoke_key(key.id)
        elif end == "sign-out":
            await person.send("/sign-out")
        else:
            service.clock.advance(601)
        call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        rest = [line async for line in lines]

    assert not any(call_id in line for line in rest)


def cookie_header(http: httpx.AsyncClient) -> dict[str, str]:
    """The cookies of a browser for another connection: they are for https, and their path."""
    return {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in http.cookies.jar)}


async def test_a_request_for_the_headers_of_a_live_list_ends_at_once_and_follows_nothing(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that carries no body would stay open for the time of a stream, and count as one."""
    monkeypatch.setattr("ringback.ui.pages.live.STREAM_SECONDS_MIN", 1000.0)
    person = await sign_in(service, "alice")

    async with serving_api(service.app) as url, httpx.AsyncClient(timeout=WAIT_SECONDS) as browser:
        answers = [
            await browser.head(f"{url}/ui{path}", headers=cookie_header(person.http))
            for path in ("/calls/live", "/live")
        ]

    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert service.services.live_lists.list_count == 0


async def test_a_stream_that_begins_at_the_shutdown_ends_at_once(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    service.services.lifecycle.begin_shutdown()

    live = await browser.open("/calls/live")

    assert (live.status_code, live.text) == (200, "retry: 1000\n\n")


async def test_the_live_home_page_changes_with_what_it_shows_and_not_with_the_time(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    insights = service.services.insights
    listing = HomeListing(insights=insights, hours=24, upstreams=tuple(insights.list_usable_upstreams(ALICE)))

    async def read() -> HomeContent:
        service.clock.advance(4)  # the counts of new rows are read again after three seconds
        return await service.services.live_lists.read_list(ALICE, listing)

    before, later = await read(), await read()
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    started = await read()
    await service.finish_call(call_id)

    assert before == later
    assert before.as_of < later.as_of
    assert started != later
    assert started != await read()
    assert [marks.call.id for marks in started.lists.newest_calls] == [call_id]
