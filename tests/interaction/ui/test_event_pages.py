"""The event log in the dashboard, and what a link to one client session shows of deliveries."""

import re

import pytest

from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.ui.pages import events as event_pages
from tests.support.builders import make_event
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import ViewerBrowser, sign_in

OPERATOR = DEFAULT_SCOPES | {Scope.ADMIN}


async def end_calls(service: ServiceUnderTest, principal: str, *sessions: str) -> list[str]:
    client = await service.create_client(principal)
    await client.post("/v1/webhooks", json={"url": CALLBACK_URL})
    bodies = [CALL_BODY | {"client_session_id": session} for session in sessions]
    call_ids = [(await client.post("/v1/calls", json=body)).json()["call"]["id"] for body in bodies]
    for call_id in call_ids:
        await service.finish_call(call_id)
    return call_ids


async def read_all_pages(browser: ViewerBrowser, path: str) -> list[list[str]]:
    """The ids of the calls on each page, which leads to the next one."""
    pages: list[list[str]] = []
    while path:
        text = (await browser.http.get(path)).text
        pages.append(re.findall(r'<a href="/ui/calls/(call_\w+)">', text))
        older = re.findall(r'rel="next" data-key="older" href="([^"]+)"', text)
        path = older[0].replace("&amp;", "&") if older else ""
    return pages


async def test_a_log_is_listed_newest_first_over_several_pages(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_pages, "PAGE_SIZE", 2)
    alice, bob = await end_calls(service, "alice", *"abcde"), await end_calls(service, "bob", "b")
    viewer, operator = await sign_in(service, "alice"), await sign_in(service, "root", scopes=OPERATOR)

    own = await read_all_pages(viewer, "/ui/events")
    everything = await read_all_pages(operator, "/ui/events")
    named = await read_all_pages(operator, "/ui/events?principal=alice")

    assert own == [[alice[4], alice[3]], [alice[2], alice[1]], [alice[0]]]
    assert sorted(call_id for page in everything for call_id in page) == sorted(alice + bob)
    assert named == own


async def test_events_are_filtered_by_name_call_and_session(service: ServiceUnderTest) -> None:
    first, second = await end_calls(service, "alice", "a", "b")
    viewer = await sign_in(service, "alice")

    for query, expected in (
        (f"call_id={first}", [first]),
        ("client_session_id=b", [second]),
        ("name=call.finished&client_session_id=a", [first]),
        ("name=call.progress", []),
    ):
        assert await read_all_pages(viewer, f"/ui/events?{query}") == [expected], query


async def test_a_link_to_one_session_shows_the_deliveries_of_its_calls_only(service: ServiceUnderTest) -> None:
    inside, outside = await end_calls(service, "alice", "s1", "s2")
    caller = (
        await service.services.api_keys.create_key("alice", name="portal", scopes=DEFAULT_SCOPES, upstreams=None)
    )[0]
    link = await service.services.portal_links.create_link(
        caller.to_caller(), client_session_id="s1", lifetime_seconds=60
    )
    browser = ViewerBrowser(await service.create_anonymous_client())
    await browser.http.get(link.url[link.url.index("/ui/") :])
    by_call = {str(each.call_id): each.id for each in await service.read_deliveries("alice")}

    portal = f"/portal/{link.link.id}"
    shown = await browser.open(f"{portal}/deliveries", call_id=inside)
    statuses = [
        (await browser.http.get(f"/ui{portal}{path}")).status_code
        for path in (
            f"/deliveries/{by_call[inside]}",
            f"/deliveries/{by_call[outside]}",
            f"/deliveries?call_id={outside}",
            "/deliveries",
            "/deliveries?state=dead",
            "/webhooks",
            "/upstreams",
            "/events",
            "/deliveries/redeliver?state=dead",
        )
    ]

    assert by_call[inside] in shown.text
    assert 'method="post"' not in shown.text
    assert "/ui/webhooks/" not in shown.text
    assert statuses == [200, *[404] * 8]


def test_long_data_of_an_event_is_cut_and_never_indented() -> None:
    """To indent it takes many times as long as to write it, on the event loop, and the page shows only its beginning."""
    long, short = [event_pages.show_event(make_event(data={"a": [[]] * length})) for length in (20_000, 20)]

    assert (len(long.data.text), long.data.is_cut) == (event_pages.DATA_LENGTH_MAX, True)
    assert long.data.text.startswith('{"a":[[],[],')
    assert short.data.text.startswith('{\n  "a": [\n')
    assert not short.data.is_cut
