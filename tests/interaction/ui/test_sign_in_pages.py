"""Sign in to the dashboard with an API key, stay signed in, and sign out."""

import re
from pathlib import Path

import httpx
import pytest

from ringback.domain.principal import Scope
from ringback.domain.sign_ins import SIGN_IN_SECONDS, SIGN_INS_KEPT
from ringback.ui.formats import session_path
from tests.support.service import CALL_BODY, PUBLIC_URL, ServiceUnderTest, running_service
from tests.support.viewer_browser import FORM_HEADERS, ViewerBrowser, sign_in


@pytest.mark.usefixtures("shared_service")
async def test_a_page_without_a_viewer_leads_to_the_sign_in_page_and_names_itself(service: ServiceUnderTest) -> None:
    browser = await service.create_anonymous_client()

    refused = await browser.get("/ui/calls?status=failed")

    assert refused.status_code == 303
    assert refused.headers["location"] == "/ui/sign-in?next=%2Fcalls%3Fstatus%3Dfailed"


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("session", ["user%40example.com", "a/b", "50 %", "é?#&"])
async def test_the_sign_in_leads_back_to_the_page_of_a_session_whatever_its_name(
    service: ServiceUnderTest, session: str
) -> None:
    alice = await service.create_client("alice")
    await alice.post("/v1/calls", json=CALL_BODY | {"client_session_id": session})
    browser = await service.create_anonymous_client()

    asked = await browser.get(f"/ui{session_path(session)}")
    form = await browser.get(asked.headers["location"])
    signed_in = await browser.post(
        str(form.url), data={"key": await service.create_api_key("alice")}, headers=FORM_HEADERS
    )
    page = await browser.get(signed_in.headers["location"])

    assert page.status_code == 200
    assert "Calls of this session" in page.text


@pytest.mark.usefixtures("shared_service")
async def test_what_an_open_page_asks_for_after_the_sign_in_has_ended_reloads_the_page(
    service: ServiceUnderTest,
) -> None:
    """A script would put the sign-in page, to which a redirect leads, into the page of the call."""
    alice = await service.create_client("alice")
    call = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    browser = await sign_in(service, "alice")
    await browser.send("/sign-out")

    refreshed = await browser.http.get(f"/ui/calls/{call}/state", headers={"HX-Request": "true"})
    followed = await browser.http.get("/ui/calls/live", headers={"Accept": "text/event-stream"})

    assert (refreshed.status_code, refreshed.headers["hx-refresh"], refreshed.content) == (204, "true", b"")
    assert (followed.status_code, followed.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert followed.text == "event: viewer-ended\ndata: -\n\n"
    assert {each.headers["cache-control"] for each in (refreshed, followed)} == {"no-store"}


@pytest.mark.usefixtures("shared_service")
async def test_the_cookie_is_for_this_host_and_no_script_reads_it(service: ServiceUnderTest) -> None:
    browser = await service.create_anonymous_client()
    key = await service.create_api_key("alice")

    signed_in = await browser.post("/ui/sign-in?next=/calls", data={"key": key}, headers=FORM_HEADERS)

    assert signed_in.headers["location"] == "/ui/calls"
    assert re.fullmatch(
        r"__Host-ringback-viewer=[\w-]{43}; Max-Age=28800; Path=/; HttpOnly; Secure; SameSite=Lax",
        signed_in.headers["set-cookie"],
    )
    assert key not in str(signed_in.headers)


@pytest.mark.usefixtures("shared_service")
async def test_a_copy_of_the_cookie_is_worth_nothing_after_the_sign_out(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    copied = dict(browser.http.cookies)

    left = await browser.send("/sign-out")
    replayed = await service.create_anonymous_client(cookies=copied)

    assert left.headers["location"] == "/ui/sign-in"
    assert not browser.http.cookies
    assert (await replayed.get("/ui/calls")).status_code == 303


async def test_a_sign_in_ends_with_its_key_and_after_a_working_day(service: ServiceUnderTest) -> None:
    revoked, tired = await sign_in(service, "alice"), await sign_in(service, "bob")
    keys = await service.services.api_keys.list_keys()

    await service.services.api_keys.revoke_key(next(key.id for key in keys if key.principal == "alice"))
    after_revocation = await revoked.open("/calls")
    service.clock.advance(SIGN_IN_SECONDS - 10)
    before_the_end = await tired.open("/calls")
    service.clock.advance(20)

    assert after_revocation.status_code == 303
    assert before_the_end.status_code == 200
    assert (await tired.open("/calls")).status_code == 303


async def test_a_sign_in_and_a_portal_link_of_a_clock_far_ahead_end_once_the_clock_is_corrected(
    service: ServiceUnderTest,
) -> None:
    """They would last forty days longer than a working day."""
    service.clock.advance(40 * 86_400)
    alice = await service.create_client("alice")
    link = (await alice.post("/v1/portal-links", json={})).json()
    browser, visitor = await sign_in(service, "alice"), await service.create_anonymous_client()
    await visitor.get(link["url"])
    before = [await browser.open("/calls"), await visitor.get(f"/ui/portal/{link['id']}/calls")]

    service.clock.advance(-40 * 86_400)
    after = [await browser.open("/calls"), await visitor.get(f"/ui/portal/{link['id']}/calls")]

    assert [each.status_code for each in before] == [200, 200]
    assert [each.status_code for each in after] == [303, 303]


@pytest.mark.usefixtures("shared_service")
async def test_a_new_sign_in_has_a_new_secret_and_ends_the_one_before(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    fixed = dict(browser.http.cookies)
    key = await service.create_api_key("alice")

    await browser.http.post("/ui/sign-in", data={"key": key}, headers=FORM_HEADERS)
    attacker = await service.create_anonymous_client(cookies=fixed)

    assert dict(browser.http.cookies) != fixed
    assert (await attacker.get("/ui/calls")).status_code == 303


@pytest.mark.usefixtures("shared_service")
async def test_the_oldest_of_too_many_sign_ins_ends(service: ServiceUnderTest) -> None:
    first = await sign_in(service, "alice")
    key = await service.create_api_key("alice")
    caller = await service.services.api_keys.authenticate_key(key)
    for _ in range(SIGN_INS_KEPT):
        await service.services.sign_ins.sign_in(caller)

    assert (await first.open("/calls")).status_code == 303


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, None, 403),
        ({"Origin": PUBLIC_URL, "Sec-Fetch-Site": "same-site"}, None, 403),
        ({"Origin": "null"}, None, 403),
        ({}, None, 403),
        (FORM_HEADERS, "", 403),
        (FORM_HEADERS, "ü" * 43, 403),
        (FORM_HEADERS, "a" * 43, 403),
        (FORM_HEADERS, None, 303),
    ],
)
async def test_only_a_form_of_the_viewer_s_own_page_acts(
    service: ServiceUnderTest, headers: dict[str, str], token: str | None, status: int
) -> None:
    browser = await sign_in(service, "alice")
    found = re.search(r'name="form_token" value="([^"]+)"', (await browser.open("/calls")).text)
    assert found is not None

    answer = await browser.http.post(
        "/ui/sign-out", data={"form_token": found[1] if token is None else token}, headers=headers
    )

    assert answer.status_code == status
    assert (await browser.open("/calls")).status_code == (200 if status == 403 else 303)


@pytest.mark.usefixtures("shared_service")
async def test_the_form_token_of_another_viewer_counts_as_none(service: ServiceUnderTest) -> None:
    alice, mallory = await sign_in(service, "alice"), await sign_in(service, "alice")
    stolen = re.search(r'name="form_token" value="([^"]+)"', (await mallory.open("/calls")).text)
    assert stolen is not None

    answer = await alice.http.post("/ui/sign-out", data={"form_token": stolen[1]}, headers=FORM_HEADERS)

    assert answer.status_code == 403


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("key", "status"),
    [("", 401), ("rbk_wrong", 401), ("k" * 40_000, 422), ("{calls}", 403), ("{metrics}", 403), ("{admin}", 303)],
)
async def test_the_sign_in_needs_a_key_that_may_read(service: ServiceUnderTest, key: str, status: int) -> None:
    browser = await service.create_anonymous_client()
    if key.startswith("{"):
        key = await service.create_api_key("alice", scopes=frozenset({Scope(key.strip("{}"))}))

    answer = await browser.post("/ui/sign-in", data={"key": key}, headers=FORM_HEADERS)

    assert answer.status_code == status
    assert ("set-cookie" in answer.headers) == (status == 303)
    if status != 303:
        assert 'role="alert"' in answer.text
        assert key == "" or key not in answer.text


async def test_wrong_keys_of_one_address_are_limited_and_right_ones_are_not(service: ServiceUnderTest) -> None:
    browser = await service.create_anonymous_client()
    right = await service.create_api_key("alice")

    statuses = [
        (await browser.post("/ui/sign-in", data={"key": key}, headers=FORM_HEADERS)).status_code
        for key in [*[right] * 15, *["rbk_wrong"] * 11, right]
    ]

    assert statuses == [303] * 15 + [401] * 10 + [429] * 2


@pytest.mark.parametrize(
    ("place", "location"),
    [
        ("/calls?status=failed", "/ui/calls?status=failed"),
        ("https://evil.example", "/ui"),
        ("//evil.example", "/ui"),
        ("/\\evil.example", "/ui"),
        ("\\/evil.example", "/ui"),
        (".evil.example", "/ui"),
        ("@evil.example", "/ui"),
        ("/calls\r\nSet-Cookie: a=b", "/ui"),
        ("/" + "a" * 5_000, "/ui"),
    ],
)
async def test_the_sign_in_leads_to_pages_of_the_dashboard_only(
    service: ServiceUnderTest, place: str, location: str
) -> None:
    browser = await service.create_anonymous_client()
    key = await service.create_api_key("alice")

    answer = await browser.post("/ui/sign-in", params={"next": place}, data={"key": key}, headers=FORM_HEADERS)

    assert answer.headers["location"] == location


async def test_below_a_public_path_and_over_http_the_dashboard_works_alike(tmp_path: Path) -> None:
    async with running_service(tmp_path, public_url="http://127.0.0.1:8090/tools") as service:
        browser = await service.create_anonymous_client(base_url="http://localhost:8090")
        key = await service.create_api_key("alice")
        headers = {"Origin": "http://localhost:8090", "Sec-Fetch-Site": "same-origin"}

        refused = await browser.get("/tools/ui/calls")
        signed_in = await browser.post("/tools/ui/sign-in?next=/calls", data={"key": key}, headers=headers)
        page = await browser.get(signed_in.headers["location"])

    assert refused.headers["location"] == "/tools/ui/sign-in?next=%2Fcalls"
    assert signed_in.headers["location"] == "/tools/ui/calls"
    assert "Secure" not in signed_in.headers["set-cookie"]
    assert page.status_code == 200
    assert 'action="/tools/ui/sign-out"' in page.text


async def test_without_authentication_everybody_is_the_anonymous_viewer_and_other_sites_are_refused(
    tmp_path: Path,
) -> None:
    async with running_service(tmp_path, auth="off") as service:
        browser = ViewerBrowser(await service.create_anonymous_client())

        page = await browser.open("/calls")
        form = await browser.open("/sign-in")
        foreign = await browser.http.post(
            "/ui/sign-out", data={"form_token": "anonymous"}, headers={"Origin": "https://evil.example"}
        )

    assert page.status_code == 200
    assert form.headers["location"] == "/ui"
    assert foreign.status_code == 403


async def test_every_response_of_the_dashboard_forbids_scripts_and_frames_of_others(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    stranger = await service.create_anonymous_client()

    responses: list[httpx.Response] = [
        *[await browser.open(path) for path in ("", "/calls", "/nothing", "/calls/call_1", "/sign-in", "/portal")],
        await stranger.get("/ui/calls"),
        await stranger.post("/ui/sign-out"),
        await stranger.post("/ui/sign-in", data={"key": "x"}),
        await browser.http.post("/ui/sign-out"),
    ]

    for response in responses:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy, response.url
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["cache-control"] == "no-store"
