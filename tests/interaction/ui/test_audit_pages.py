"""The page about who changed what."""

from ringback.domain.principal import Scope
from tests.support.service import CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import sign_in


async def test_the_page_shows_the_viewer_s_own_entries_and_an_operator_all_of_them(service: ServiceUnderTest) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    own = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    foreign = (await bob.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]

    of_alice = (await (await sign_in(service, "alice")).open("/audit")).text
    operator = await sign_in(service, "root", scopes=frozenset({Scope.ADMIN}))
    of_all, of_bob = (await operator.open("/audit")).text, (await operator.open("/audit", principal="bob")).text

    assert own in of_alice
    assert foreign not in of_alice
    assert own in of_all
    assert foreign in of_all
    assert foreign in of_bob
    assert own not in of_bob


async def test_the_page_goes_on_with_older_entries(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    for number in range(51):
        await alice.patch(f"/v1/webhooks/{webhook}", json={"description": f"new {number}"})
    browser = await sign_in(service, "alice")

    first = await browser.open("/audit")
    older = first.text.partition('rel="next" data-key="older" href="')[2].partition('"')[0].replace("&amp;", "&")
    rest = await browser.http.get(older)

    assert "register_webhook" not in first.text
    assert "register_webhook" in rest.text
    assert 'rel="next"' not in rest.text
