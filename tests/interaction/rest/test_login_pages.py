"""The pages on which a person signs in to an upstream, as a browser uses them."""

import html
import logging
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from ringback.domain.principal import Principal, Scope
from ringback.domain.upstream_logins import CredentialsScope, LoginFailed, LoginFailure
from tests.support.login_flow import ACCESS_TOKEN, CODE, ISSUER
from tests.support.service import PUBLIC_URL, ServiceUnderTest, running_service

COOKIE = "__Host-ringback-login-mine"
HOSTED = {"mine": CredentialsScope.PRINCIPAL, "ours": CredentialsScope.SHARED, "callback": CredentialsScope.PRINCIPAL}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path, hosted=HOSTED) as running:
        yield running


@pytest.fixture
async def browser(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_anonymous_client()


async def send_form(
    browser: httpx.AsyncClient, key: str | None, *, upstream: str = "mine", **headers: str
) -> httpx.Response:
    fields = {} if key is None else {"key": key}
    origin = {"Origin": PUBLIC_URL, "Sec-Fetch-Site": "same-origin"}
    return await browser.post(f"/login/{upstream}", data=fields, headers=origin | headers)


def read_link(page: httpx.Response) -> str:
    (link,) = re.findall(r'href="([^"]+)"', page.text)
    return html.unescape(link)


async def come_back(browser: httpx.AsyncClient, authorization_url: str, **query: str) -> httpx.Response:
    """What the authorization server sends the browser to."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(authorization_url).query).items()}
    answer = urlencode({"state": asked["state"], "code": CODE} | query)
    return await browser.get(
        f"{urlsplit(asked['redirect_uri']).path}?{answer}", headers={"Sec-Fetch-Site": "cross-site"}
    )


async def has_tokens(service: ServiceUnderTest, owner: str, upstream: str = "mine") -> bool:
    return await service.store.read(lambda tx: tx.upstream_tokens.get(upstream, Principal(owner))) is not None


async def test_a_person_signs_in_with_a_key_in_a_browser(service: ServiceUnderTest, browser: httpx.AsyncClient) -> None:
    form = await browser.get("/login/mine")
    page = await send_form(browser, await service.create_api_key("alice"))
    link = read_link(page)
    done = await come_back(browser, link)

    assert (form.status_code, page.status_code, done.status_code) == (200, 200, 200)
    assert link.startswith(f"{ISSUER}/authorize?")
    assert "You are signed in to mine" in done.text
    assert await has_tokens(service, "alice")
    assert COOKIE not in browser.cookies


async def test_the_form_says_what_to_do_without_a_key(browser: httpx.AsyncClient) -> None:
    form = (await browser.get("/login/ours")).text

    assert "ringback upstreams login ours" in form
    assert "account of yours" not in form


@pytest.mark.parametrize(("upstream", "is_said"), [("ours", True), ("mine", False)])
async def test_a_login_for_all_users_says_so(
    service: ServiceUnderTest, browser: httpx.AsyncClient, upstream: str, *, is_said: bool
) -> None:
    operator = await service.create_api_key("ann", scopes=frozenset({Scope.ADMIN}))
    page = await send_form(browser, operator, upstream=upstream)

    assert ("All users of this Ringback share this sign-in" in page.text) is is_said


async def test_every_page_forbids_scripts_frames_referrers_and_caches(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    form = await browser.get("/login/mine")
    page = await send_form(browser, await service.create_api_key("alice"))
    done = await come_back(browser, read_link(page))
    refused = await send_form(browser, "rbk_wrong")
    unknown = await browser.get("/login/callback/mine?state=none&code=none")

    for each in (form, page, done, refused, unknown):
        policy = each.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert policy.endswith("form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
        assert each.headers["cache-control"] == "no-store"
        assert each.headers["x-content-type-options"] == "nosniff"
        assert "<script" not in each.text
    assert {each.headers["referrer-policy"] for each in (form, refused)} == {"same-origin"}
    assert {each.headers["referrer-policy"] for each in (page, done, unknown)} == {"no-referrer"}


async def test_the_cookie_is_bound_to_the_host_hidden_from_scripts_and_short_lived(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    page = await send_form(browser, await service.create_api_key("alice"))

    cookie = page.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {part.strip() for part in cookie.split(";")[1:]} == {
        "HttpOnly",
        "Max-Age=600",
        "Path=/",
        "SameSite=lax",
        "Secure",
    }


async def test_a_link_from_another_person_completes_no_login(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    """The attacker starts a login with his key, and the victim follows the link to the authorization server."""
    attacker = await service.create_anonymous_client()
    link = read_link(await send_form(attacker, await service.create_api_key("mallory")))

    without = await come_back(browser, link)
    await send_form(browser, await service.create_api_key("alice"))
    with_own_login = await come_back(browser, link)

    assert (without.status_code, with_own_login.status_code) == (404, 404)
    assert "close this page" in without.text
    assert CODE not in without.text
    assert service.login_flow.codes == []
    assert not await has_tokens(service, "mallory")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"{PUBLIC_URL}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_a_form_of_another_site_starts_nothing(
    service: ServiceUnderTest, browser: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    refused = await send_form(browser, await service.create_api_key("mallory"), **headers)

    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers
    assert service.login_flow.requests == []


async def test_a_form_without_an_origin_starts_nothing(service: ServiceUnderTest, browser: httpx.AsyncClient) -> None:
    refused = await browser.post("/login/mine", data={"key": await service.create_api_key("mallory")})

    assert refused.status_code == 403
    assert f"{PUBLIC_URL}/login/mine" in refused.text
    assert service.login_flow.requests == []


async def test_unknown_upstreams_look_like_others_until_a_key_is_given(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    limited = await service.create_api_key("alice", upstreams=frozenset({"ours"}))
    forms = [(await browser.get(f"/login/{name}")).text.replace(name, "*") for name in ("mine", "nowhere", "git")]
    hidden, unknown = await send_form(browser, limited), await send_form(browser, limited, upstream="nowhere")

    assert len(set(forms)) == 1
    assert (hidden.status_code, unknown.status_code) == (404, 404)
    assert hidden.text.replace("mine", "*") == unknown.text.replace("nowhere", "*")


async def test_a_key_without_the_scope_gets_words(service: ServiceUnderTest, browser: httpx.AsyncClient) -> None:
    refused = await send_form(browser, await service.create_api_key("alice"), upstream="ours")

    assert refused.status_code == 403
    assert "lacks the scope" in html.unescape(refused.text)


@pytest.mark.parametrize(
    "name", ["%3Cscript%3E", "a.b", "UPPER", "a" * 25, "%22%3E%3Cimg%20src=x%3E", "..%2Fv1", "%00"]
)
async def test_a_name_that_no_upstream_can_have_is_not_shown(browser: httpx.AsyncClient, name: str) -> None:
    for answer in (await browser.get(f"/login/{name}"), await send_form(browser, "k", upstream=name)):
        assert answer.status_code == 404
        assert "<script>" not in answer.text
        assert "<img" not in answer.text
        assert "UPPER" not in answer.text


async def test_what_an_authorization_server_says_is_never_shown(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    key = await service.create_api_key("alice")
    attack = "<script>alert('canary')</script>"
    denied = await come_back(
        browser, read_link(await send_form(browser, key)), error="access_denied", error_description=attack
    )
    mixed_up = await come_back(browser, read_link(await send_form(browser, key)), iss="https://canary.example")
    service.login_flow.exchange_failure = LoginFailed(LoginFailure.REFUSED, f"Start it again. {attack}")
    escaped = await come_back(browser, read_link(await send_form(browser, key)))

    assert [each.status_code for each in (denied, mixed_up, escaped)] == [409, 409, 409]
    assert "canary" not in denied.text + mixed_up.text
    assert "denied" in denied.text
    assert attack not in escaped.text
    assert not await has_tokens(service, "alice")


async def test_a_url_of_an_authorization_server_stays_within_its_attribute(
    service: ServiceUnderTest, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "https://evil.example/?a=\"><script>alert(1)</script>&b='; url=javascript:alert(1)"
    begin = service.login_flow.begin_authorization

    async def begin_hostile(upstream: str, **options: Any) -> Any:
        started = await begin(upstream, **options)
        object.__setattr__(started, "authorization_url", hostile)
        return started

    monkeypatch.setattr(type(service.login_flow), "begin_authorization", staticmethod(begin_hostile))
    page = await send_form(browser, await service.create_api_key("alice"))

    assert "<script>" not in page.text
    assert read_link(page) == hostile.replace("'", "%27")


async def test_wrong_keys_of_one_address_are_limited_and_a_right_key_is_not_counted(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    right = await service.create_api_key("alice")
    for _ in range(5):
        assert (await send_form(browser, right)).status_code == 200
    wrong = [(await send_form(browser, f"rbk_{number}")).status_code for number in range(11)]
    then = await send_form(browser, right)

    assert wrong == [401] * 10 + [429]
    assert then.status_code == 429


@pytest.mark.parametrize("body", [b"key=" + b"a" * 40_000, b"\xff\xfe", b"key=", b"", b"&" * 100, b"key=a&key=b"])
async def test_a_malformed_form_is_refused(browser: httpx.AsyncClient, body: bytes) -> None:
    headers = {"Origin": PUBLIC_URL, "Content-Type": "application/x-www-form-urlencoded"}
    answer = await browser.post("/login/mine", content=body, headers=headers)

    assert answer.status_code in {401, 413, 422}


async def test_a_cookie_that_the_service_did_not_make_is_ignored(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    attacker = await service.create_anonymous_client()
    page = await send_form(attacker, await service.create_api_key("mallory"))
    for number, value in enumerate(("", "login_1", "AAAA", "é".encode().decode("latin-1"), "A" * 3000)):
        browser.cookies.set(f"__Host-ringback-login-{number}", value.encode("ascii", "ignore").decode())

    assert (await come_back(browser, read_link(page))).status_code == 404


async def test_a_login_is_completed_once_in_its_browser(service: ServiceUnderTest, browser: httpx.AsyncClient) -> None:
    page = await send_form(browser, await service.create_api_key("alice"))
    cookie = browser.cookies[COOKIE]
    first = await come_back(browser, read_link(page))
    browser.cookies.set(COOKIE, cookie, domain=urlsplit(PUBLIC_URL).hostname or "")
    second = await come_back(browser, read_link(page))

    assert (first.status_code, second.status_code) == (200, 404)
    assert service.login_flow.codes == [CODE]


async def test_a_head_request_completes_nothing(service: ServiceUnderTest, browser: httpx.AsyncClient) -> None:
    link = read_link(await send_form(browser, await service.create_api_key("alice")))
    state = parse_qs(urlsplit(link).query)["state"][0]

    looked = await browser.head(f"/login/callback/mine?state={state}&code={CODE}")
    assert (looked.status_code, looked.headers["allow"]) == (405, "GET")
    assert service.login_flow.codes == []


async def test_two_upstreams_are_signed_in_to_in_one_browser_at_the_same_time(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    key = await service.create_api_key("alice")
    links = [read_link(await send_form(browser, key, upstream=name)) for name in ("mine", "callback")]

    assert [(await come_back(browser, link)).status_code for link in links] == [200, 200]
    assert await has_tokens(service, "alice", "callback")


async def test_a_redirect_to_another_upstream_completes_no_login(
    service: ServiceUnderTest, browser: httpx.AsyncClient
) -> None:
    """The authorization server of `mine` sent the browser on to that of `ours`, whose code must not reach it."""
    link = read_link(await send_form(browser, await service.create_api_key("alice")))
    refused = await come_back(browser, link.replace("callback%2Fmine", "callback%2Fours"))

    assert refused.status_code == 409
    assert service.login_flow.codes == []
    assert not await has_tokens(service, "alice")


async def test_an_upstream_named_callback_has_its_page(browser: httpx.AsyncClient) -> None:
    assert "Sign in to callback" in (await browser.get("/login/callback")).text


async def test_without_authentication_no_key_is_asked_for(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8090"
    async with running_service(tmp_path, auth="off", public_url=url, hosted=HOSTED) as service:
        browser = await service.create_anonymous_client(base_url=url)
        form = await browser.get("/login/mine")
        page = await send_form(browser, None, Origin=url)
        done = await come_back(browser, read_link(page))

        assert 'name="key"' not in form.text
        assert page.headers["set-cookie"].startswith("ringback-login-mine=")
        assert "Secure" not in page.headers["set-cookie"]
        assert done.status_code == 200
        assert await has_tokens(service, "anonymous")


async def test_the_pages_work_below_a_public_path(tmp_path: Path) -> None:
    url = "https://tools.example/ringback"
    async with running_service(tmp_path, public_url=url, hosted=HOSTED) as service:
        browser = await service.create_anonymous_client(base_url="https://tools.example")
        origin = {"Origin": "https://tools.example"}
        key = await service.create_api_key("alice")
        page = await browser.post("/ringback/login/mine", data={"key": key}, headers=origin)
        done = await come_back(browser, read_link(page))
        document = (await browser.get("/ringback/login/mine/client.json")).json()

        assert done.status_code == 200
        assert document["client_id"] == f"{url}/login/mine/client.json"
        assert document["redirect_uris"][0] == f"{url}/login/callback/mine"


async def test_the_client_metadata_document_is_served_over_https_only(
    tmp_path: Path, browser: httpx.AsyncClient
) -> None:
    served = await browser.get("/login/mine/client.json")
    (tmp_path / "plain").mkdir()
    async with running_service(tmp_path / "plain", auth="off", public_url="http://127.0.0.1:1") as plain:
        refused = await (await plain.create_anonymous_client(base_url="http://127.0.0.1:1")).get(
            "/login/mine/client.json"
        )

    assert served.json()["client_id"] == f"{PUBLIC_URL}/login/mine/client.json"
    assert refused.status_code == 404


async def test_no_page_and_no_log_line_shows_a_secret(
    service: ServiceUnderTest, browser: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback")
    key = await service.create_api_key("alice")
    page = await send_form(browser, key)
    done = await come_back(browser, read_link(page))
    failed = await come_back(browser, read_link(page))

    texts = page.text + done.text + failed.text + str(dict(page.headers))
    texts += "".join(str(record.__dict__) for record in caplog.records if record.name.startswith("ringback"))
    assert "request.finished" in texts
    assert [each for each in (key, CODE, ACCESS_TOKEN, "canary-verifier") if each in texts] == []
