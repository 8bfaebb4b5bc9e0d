"""Portal links: who may make them, what they show, where they may be embedded, and how they end."""

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.client.problems import InvalidRequest
from ringback.domain.principal import Scope
from tests.support.application import running_application
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service
from tests.support.viewer_browser import FORM_HEADERS, sign_in

PRODUCT = "https://app.example.com"


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """A portal link in a browser."""

    browser: httpx.AsyncClient
    opened: httpx.Response
    path: str
    """Of its pages."""

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.browser.get(f"{self.path}{path}", **options)


async def open_link(
    service: ServiceUnderTest, link: dict[str, Any], browser: httpx.AsyncClient | None = None
) -> OpenedLink:
    browser = browser or await service.create_anonymous_client()
    return OpenedLink(browser, await browser.get(link["url"]), f"/ui/portal/{link['id']}")


async def create_link(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    created = await client.post("/v1/portal-links", json=body)
    assert created.status_code == 201, created.text
    link: dict[str, Any] = created.json()
    return link


async def test_a_link_shows_the_pages_of_its_principal_read_only_and_in_frames_of_the_product_only(
    tmp_path: Path,
) -> None:
    async with running_service(tmp_path, portal_origins=[PRODUCT]) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        own = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        foreign = (await bob.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        link = await create_link(alice)

        shown = await open_link(service, link)
        page = await shown.get("/calls")
        audit = await shown.get("/audit")
        outside = await shown.browser.get("/ui/calls")
        signed_in = await (await sign_in(service, "alice")).open("/calls")

    assert shown.opened.headers["location"] == shown.path
    assert re.fullmatch(
        rf"__Secure-ringback-portal=[\w-]{{43}}; Max-Age=3(600|599); Path={shown.path}; HttpOnly; Secure; SameSite=None; "
        "Partitioned",
        shown.opened.headers["set-cookie"],
    )
    assert shown.opened.headers["referrer-policy"] == "no-referrer"
    assert outside.headers["location"].startswith("/ui/sign-in")
    assert own in page.text
    assert foreign not in page.text
    assert 'method="post"' not in page.text
    assert f"frame-ancestors {PRODUCT}" in page.headers["content-security-policy"]
    assert "x-frame-options" not in page.headers
    assert audit.status_code == 404
    assert "frame-ancestors 'none'" in signed_in.headers["content-security-policy"]


@pytest.mark.usefixtures("shared_service")
async def test_a_link_to_one_session_shows_nothing_else(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    own = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    other = (await alice.post("/v1/calls", json=CALL_BODY | {"client_session_id": "session-2"})).json()["call"]["id"]
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    link = await create_link(alice, client_session_id="session-1")

    shown = await open_link(service, link)
    page = (await shown.get("/calls")).text
    hidden = ["/webhooks", f"/webhooks/{webhook}", "/upstreams", "/audit", "/events", f"/calls/{other}"]
    statuses = {path: (await shown.get(path)).status_code for path in hidden}
    first = await shown.get("")

    assert shown.opened.headers["location"] == first.headers["location"] == f"{shown.path}/sessions/session-1"
    assert own in page
    assert other not in page
    assert set(statuses.values()) == {404}, statuses


async def test_links_to_a_session_end_with_its_erasure_and_others_stay(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    ended = await create_link(alice, client_session_id="session-1")
    stays = [(await create_link(alice, **body))["id"] for body in ({}, {"client_session_id": "session-2"})]
    shown = await open_link(service, ended)
    await alice.post("/v1/calls", json=CALL_BODY)

    await alice.delete("/v1/sessions/session-1")
    refused = (await shown.get("/calls")).status_code
    await alice.delete("/v1/sessions/session-1", params={"cancel": True})
    links = (await alice.get("/v1/portal-links")).json()["portal_links"]

    assert refused == 200, "a request that is refused, as the call has not ended, deletes nothing"
    assert {link["id"] for link in links} == set(stays)
    assert (await shown.get("/calls")).status_code != 200


async def test_a_link_of_a_key_for_some_upstreams_shows_what_the_key_reads(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    narrow = await service.create_client("alice", upstreams=frozenset({"other"}))
    shown = await open_link(service, await create_link(narrow))

    read = [each["id"] for each in (await narrow.get("/v1/calls")).json()["calls"]]
    upstreams = [await shown.get("/upstreams"), await (await sign_in(service, "alice")).open("/upstreams")]

    assert read == [call_id]
    assert call_id in (await shown.get("/calls")).text
    assert ["/upstreams/git" in page.text for page in upstreams] == [False, True]


@pytest.mark.usefixtures("shared_service")
async def test_a_link_acts_on_nothing(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    link = await create_link(alice)
    shown = await open_link(service, link)

    answers = [
        await shown.browser.post(f"{base}{path}", data={"form_token": token}, headers=FORM_HEADERS)
        for base in ("/ui", shown.path)
        for path in ("/sign-out", "/webhooks/wh_1/test")
        for token in ("", "anonymous")
    ]

    assert {answer.status_code for answer in answers} <= {401, 403, 404, 405}
    assert (await shown.browser.get("/v1/calls")).status_code == 401


@pytest.mark.parametrize("end", ["expiry", "deletion", "revocation of its key", "erasure of its principal"])
async def test_a_link_ends_at_once_in_browsers_that_have_opened_it(service: ServiceUnderTest, end: str) -> None:
    key, text = await service.services.api_keys.create_key(
        "alice", name="", scopes=frozenset({Scope.READ}), upstreams=None
    )
    alice = await service.create_anonymous_client(headers={"Authorization": f"Bearer {text}"})
    link = await create_link(alice, expires_in_seconds=600)
    shown = await open_link(service, link)
    before = await shown.get("/calls")

    if end == "expiry":
        service.clock.advance(601)
    elif end == "deletion":
        assert (await alice.delete(f"/v1/portal-links/{link['id']}")).status_code == 204
    elif end == "revocation of its key":
        await service.services.api_keys.revoke_key(key.id)
    else:
        root = await service.create_client("root", scopes=frozenset({Scope.ADMIN}))
        assert (await root.delete("/v1/principals/alice")).status_code == 200
    after = await shown.get("/calls?status=working", headers={"Sec-Fetch-Dest": "iframe"})
    outside = await shown.get("/calls?status=working", headers={"Sec-Fetch-Dest": "document"})
    again = (await open_link(service, link)).opened

    assert before.status_code == 200
    assert after.status_code == again.status_code == 404
    assert "This link has expired" in after.text
    assert "set-cookie" not in again.headers
    assert outside.headers["location"] == "/ui/calls?status=working"
    assert "Max-Age=0" in outside.headers["set-cookie"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("scopes", [{Scope.READ}, {Scope.READ, Scope.METRICS}])
async def test_a_key_that_may_only_read_deletes_the_links_that_it_made_and_no_others(
    service: ServiceUnderTest, scopes: set[Scope]
) -> None:
    alice = await service.create_client("alice")
    reader = await service.create_client("alice", scopes=frozenset(scopes))
    link, own = await create_link(alice), await create_link(reader)

    refused = await reader.delete(f"/v1/portal-links/{link['id']}")
    deleted = [
        await reader.delete(f"/v1/portal-links/{own['id']}"),
        await alice.delete(f"/v1/portal-links/{link['id']}"),
    ]

    assert refused.status_code == 403
    assert [response.status_code for response in deleted] == [204, 204]


async def test_expired_links_and_sign_ins_are_removed(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    await create_link(alice, expires_in_seconds=600)
    await sign_in(service, "alice")
    service.clock.advance(9 * 3600)

    await service.run_janitor()

    counts = service.count_rows()
    assert (counts["portal_links"], counts["sign_ins"]) == (0, 0)


@pytest.mark.usefixtures("shared_service")
async def test_one_browser_shows_several_links_and_a_sign_in_side_by_side(service: ServiceUnderTest) -> None:
    owners = ("alice", "mallory", "bob")
    clients = {owner: await service.create_client(owner) for owner in owners}
    calls = {
        owner: (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        for owner, client in clients.items()
    }
    person = await sign_in(service, "bob")
    links = {owner: await create_link(clients[owner]) for owner in ("alice", "mallory")}

    shown = {owner: await open_link(service, link, person.http) for owner, link in links.items()}
    pages = {owner: (await link.get("/calls")).text for owner, link in shown.items()}
    pages["bob"] = (await person.open("/calls")).text

    assert {owner: [call for call in calls.values() if call in page] for owner, page in pages.items()} == {
        owner: [call] for owner, call in calls.items()
    }


async def test_every_link_of_a_page_stays_below_the_path_of_its_portal_link(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    body = CALL_BODY | {"client_session_id": "s/1", "callback": {"url": CALLBACK_URL}}
    calls = [(await alice.post("/v1/calls", json=body)).json()["call"]["id"] for _ in range(51)]
    await service.finish_call(calls[0])
    (delivery,) = await service.read_deliveries("alice")
    shown = await open_link(service, await create_link(alice))
    paths = (
        "",
        "/calls",
        f"/calls/{calls[0]}",
        f"/calls/{calls[1]}/state",
        "/sessions",
        "/sessions/s%2F1",
        "/webhooks",
    )
    others = (
        f"/webhooks/{delivery.webhook_id}",
        "/deliveries",
        f"/deliveries/{delivery.id}",
        "/upstreams",
        "/events",
        "/x",
    )

    pages = {path: await shown.get(path) for path in (*paths, *others)}
    searched = [await shown.get(f"/{path}?q={calls[0]}") for path in ("calls", "lookup")]

    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200) | {"/x": 404}
    html = "".join(page.text for page in pages.values())
    places = set(re.findall(r'(?:href|action|hx-get|sse-connect)="(/[^"]*)"', html))
    assert {place for place in places if not place.startswith((shown.path, "/ui/assets/"))} == set()
    assert {page.headers["location"] for page in searched} == {f"{shown.path}/calls/{calls[0]}"}


@pytest.mark.usefixtures("shared_service")
async def test_the_secret_of_one_link_opens_no_page_of_another(service: ServiceUnderTest) -> None:
    """Another host of the site may set a cookie for any path."""
    alice, mallory = await service.create_client("alice"), await service.create_client("mallory")
    own, foreign = await create_link(alice), await create_link(mallory)
    secret = foreign["url"].split("link=")[1]

    browser = await service.create_anonymous_client(headers={"Cookie": f"__Secure-ringback-portal={secret}"})
    answers = [await browser.get(f"/ui/portal/{link['id']}/calls") for link in (own, foreign)]

    assert [answer.status_code for answer in answers] == [303, 200]


@pytest.mark.usefixtures("shared_service")
async def test_cookies_that_another_host_has_set_do_not_hide_that_of_the_link(service: ServiceUnderTest) -> None:
    alice, mallory = await service.create_client("alice"), await service.create_client("mallory")
    own, foreign = await create_link(alice), await create_link(mallory)
    name, secrets = "__Secure-ringback-portal", [link["url"].split("link=")[1] for link in (own, foreign)]
    path, browser = f"/ui/portal/{own['id']}/calls", await service.create_anonymous_client()

    def get(*values: str) -> Any:
        return browser.get(path, headers={"Cookie": "; ".join(f"{name}={value}" for value in values)})

    shown = [await get(*secrets), await get(*reversed(secrets)), await get("x", "y", "z", secrets[0])]
    refused = [await get("w", "x", "y", "z", secrets[0]), await get(secrets[1])]

    assert [answer.status_code for answer in shown] == [200, 200, 200]
    assert not any("set-cookie" in answer.headers for answer in shown)
    assert [answer.status_code for answer in refused] == [303, 303]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "link_id", ["x;%20Domain=evil.example;%20Path=%2F", "link_%0d%0aX-Injected:%201", "%E2%82%AC", "%00", "link_1"]
)
async def test_a_path_that_can_name_no_link_gets_a_404_and_sets_no_cookie(
    service: ServiceUnderTest, link_id: str
) -> None:
    browser = await service.create_anonymous_client(headers={"Cookie": "__Secure-ringback-portal=x"})

    answer = await browser.get(f"/ui/portal/{link_id}/calls")

    assert (answer.status_code, "set-cookie" in answer.headers) == (404, False)


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 201),
        ({"expires_in_seconds": 86_400}, 201),
        ({"expires_in_seconds": 86_401}, 422),
        ({"expires_in_seconds": 59}, 422),
        ({"expires_in_seconds": "3600"}, 422),
        ({"client_session_id": "s" * 257}, 422),
        ({"client_session_id": ""}, 422),
        ({"scopes": ["admin"]}, 422),
    ],
)
async def test_a_link_lives_a_day_at_most(service: ServiceUnderTest, body: dict[str, Any], status: int) -> None:
    alice = await service.create_client("alice")

    assert (await alice.post("/v1/portal-links", json=body)).status_code == status


async def test_only_the_owner_and_operators_list_and_delete_links_and_no_list_has_their_urls(
    service: ServiceUnderTest,
) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    root = await service.create_client("root", scopes=frozenset({Scope.ADMIN}))
    link = await create_link(alice)
    for_alice = (await root.post("/v1/portal-links", params={"principal": "alice"}, json={})).json()

    own = await alice.get("/v1/portal-links")
    foreign = await bob.delete(f"/v1/portal-links/{link['id']}")
    unknown = await bob.delete("/v1/portal-links/link_01KAGZCQ00J5K7M9N2P4Q6R8S1")
    deleted = await root.delete(f"/v1/portal-links/{link['id']}", params={"principal": "*"})

    assert [each["id"] for each in own.json()["portal_links"]] == sorted([link["id"], for_alice["id"]], reverse=True)
    assert (for_alice["principal"], for_alice["created_by"]) == ("alice", "root")
    assert "link=" not in own.text
    assert (await bob.get("/v1/portal-links")).json()["portal_links"] == []
    assert (foreign.status_code, foreign.json()["detail"]) == (unknown.status_code, unknown.json()["detail"])
    assert deleted.status_code == 204


async def test_without_a_dashboard_there_are_no_pages_and_no_links_to_them(tmp_path: Path) -> None:
    async with running_application(tmp_path, ui=False) as ringback:
        agent = await ringback.create_agent_client("alice")

        missing = [await ringback.get(path) for path in ("/ui", "/ui/calls", "/ui/sign-in", "/ui/portal?link=x")]
        with pytest.raises(InvalidRequest, match="RINGBACK_UI=on"):
            await agent.create_portal_link()

    assert {response.status_code for response in missing} == {404}


@pytest.mark.usefixtures("shared_service")
async def test_every_link_of_the_pages_of_one_session_opens(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    labels = {"client_session_id": "session-7", "correlation_id": "c1"}
    ended = (await alice.post("/v1/calls", json=CALL_BODY | labels)).json()["call"]["id"]
    await service.finish_call(ended)
    await alice.post("/v1/calls", json=CALL_BODY | labels)
    shown = await open_link(service, await create_link(alice, client_session_id="session-7"))
    empty = await open_link(service, await create_link(alice, client_session_id="session-8"), shown.browser)
    waiting, answered = [shown.path, f"{shown.path}/calls?outcome=unknown", f"{empty.path}/calls"], dict[str, int]()

    while waiting:
        place = waiting.pop()
        page = await shown.browser.get(place, follow_redirects=True)
        answered[place] = page.status_code
        links = set(re.findall(r'<a [^>]*href="(/ui/[^"]*)"', page.text))
        waiting += [place for link in links if (place := unescape(link)) not in {*answered, *waiting}]

    assert len(answered) > 5
    assert {place: status for place, status in answered.items() if status != 200} == {}
