"""What all pages share: the head, files that browsers keep, and the first page."""

import re

import pytest

from ringback.domain.principal import ANONYMOUS_PRINCIPAL
from ringback.ui.assets import ASSETS
from tests.support.service import CALL_BODY, ServiceUnderTest
from tests.support.viewer_browser import sign_in


@pytest.mark.usefixtures("shared_service")
async def test_a_page_names_files_that_browsers_keep_without_asking_again(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")

    urls = re.findall(r'(?:src|href)="(/ui/assets/[^"]+)"', (await browser.open("/calls")).text)

    assert {url.rpartition("/")[2] for url in urls} == set(ASSETS)
    for url in urls:
        sent = await browser.http.get(url)
        assert sent.content == ASSETS[url.rpartition("/")[2]].content
        assert sent.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert sent.headers["x-content-type-options"] == "nosniff"
        assert sent.headers["content-type"].split(";")[0] in {"text/css", "text/javascript", "image/svg+xml"}


@pytest.mark.usefixtures("shared_service")
async def test_files_need_no_viewer_and_one_of_another_version_is_not_kept(service: ServiceUnderTest) -> None:
    browser = await service.create_anonymous_client()

    other_version = await browser.get("/ui/assets/0123456789abcdef/ringback.css")
    unknown = [
        await browser.get(f"/ui/assets/0123456789abcdef/{name}")
        for name in ("assets.py", "LICENSES.txt", "..%2F..%2Froutes.py")
    ]

    assert other_version.content == ASSETS["ringback.css"].content
    assert other_version.headers["cache-control"] == "no-store"
    assert [response.status_code for response in unknown] == [404, 404, 303]


@pytest.mark.usefixtures("shared_service")
async def test_the_current_section_is_marked_and_a_viewer_can_sign_out(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")

    page = (await browser.open("/calls")).text

    navigation = page.partition('<nav class="main-nav"')[2].partition("</nav>")[0]
    assert re.findall(r'<a href="([^"]*)" aria-current="page">(.*?)</a>', navigation) == [("/ui/calls", "Calls")]
    assert 'action="/ui/sign-out"' in page
    assert '<a class="skip-link" href="#main">' in page


@pytest.mark.usefixtures("shared_service")
async def test_a_key_of_the_principal_without_authentication_signs_out_as_every_other(
    service: ServiceUnderTest,
) -> None:
    """Such a key reads what was stored before authentication was turned on."""
    browser = await sign_in(service, ANONYMOUS_PRINCIPAL)

    assert 'action="/ui/sign-out"' in (await browser.open("/calls")).text


@pytest.mark.usefixtures("shared_service")
async def test_a_list_refuses_a_filter_that_it_does_not_have(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")

    for path in ("/calls", "/deliveries", "/events", "/webhooks", "/sessions", "/audit"):
        refused = await browser.open(path, statuss="dead")

        assert refused.status_code == 422, path
        assert "There is no filter &#39;statuss&#39;" in refused.text, path


@pytest.mark.usefixtures("shared_service")
async def test_an_address_without_a_page_is_answered_with_a_page(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")

    missing = await browser.open("/nothing/<script>here")

    assert missing.status_code == 404
    assert missing.headers["content-type"].startswith("text/html")
    assert "The dashboard has no page at this address" in missing.text
    assert "<script>here" not in missing.text


async def test_the_first_page_says_what_to_do_next_and_then_shows_the_viewers_calls_only(
    service: ServiceUnderTest,
) -> None:
    alice, bob = await sign_in(service, "alice"), await sign_in(service, "bob")
    before = (await alice.open("")).text
    client = await service.create_client("alice")
    call_id = (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]

    assert "ringback call UPSTREAM TOOL" in before
    assert f"/ui/calls/{call_id}" in (await alice.open("")).text
    assert call_id not in (await bob.open("")).text


@pytest.mark.usefixtures("shared_service")
async def test_each_section_of_the_navigation_is_a_page(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    navigation = (await browser.open("/")).text.partition('<nav class="main-nav"')[2].partition("</nav>")[0]

    paths = re.findall(r'href="/ui([^"]*)"', navigation)
    shown = {path: (await browser.open(path)).status_code for path in paths}

    assert len(paths) == 8
    assert {path: status for path, status in shown.items() if status != 200} == {}
