"""The forms that register and change a webhook, in the dashboard."""

import re
from html import unescape
from typing import Any

import httpx
import pytest

from ringback.domain.errors import QuotaExceeded
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from tests.support.service import CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import FORM_HEADERS, sign_in


async def register(client: httpx.AsyncClient, **body: object) -> str:
    response = await client.post("/v1/webhooks", json={"url": CALLBACK_URL, **body})
    assert response.is_success, response.text
    return response.json()["id"]


async def read_webhook(client: httpx.AsyncClient, webhook_id: str) -> dict[str, object]:
    return (await client.get(f"/v1/webhooks/{webhook_id}")).json()


def read_fields(html: str) -> dict[str, Any]:
    """What a browser would send of a form that no viewer has changed."""
    fields: dict[str, list[str]] = {}
    for attributes in re.findall(r"<input ([^>]*)>", html):
        name, value = re.search(r'name="([^"]*)"', attributes), re.search(r'value="([^"]*)"', attributes)
        if name and value and name[1] != "q" and ('type="checkbox"' not in attributes or " checked" in attributes):
            fields.setdefault(name[1], []).append(unescape(value[1]))
    for name, options in re.findall(r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', html, re.DOTALL):
        fields[name] = re.findall(r'value="([^"]*)" selected', options)
    return fields


@pytest.mark.usefixtures("shared_service")
async def test_the_form_of_a_webhook_changes_what_differs_from_what_it_showed(service: ServiceUnderTest) -> None:
    client, browser = await service.create_client("alice"), await sign_in(service, "alice")
    assert (await client.put("/v1/event-types/order.paid", json={"description": "Paid."})).is_success
    webhook_id = await register(client, events=["call.finished", "order.paid"], description="old", outcomes=["result"])
    path = f"/webhooks/{webhook_id}/edit"
    form = read_fields((await browser.open(path)).text)
    await client.patch(f"/v1/webhooks/{webhook_id}", json={"include_result": True})
    typed = form | {"description": "new", "events": ["call.finished", "call.progress"], "rate_per_second": "0.5"}
    typed["outcomes"] = []

    saved = await browser.http.post(f"/ui{path}", data=typed, headers=FORM_HEADERS)
    refused = await browser.http.post(f"/ui{path}", data=form | {"url": "ftp://wrong.example/"}, headers=FORM_HEADERS)

    webhook = await read_webhook(client, webhook_id)
    assert saved.headers["location"].endswith(f"/ui/webhooks/{webhook_id}?done=webhook-changed")
    assert (webhook["description"], webhook["rate_per_second"], webhook["url"]) == ("new", 0.5, CALLBACK_URL)
    assert webhook["events"] == ["call.finished", "call.progress", "order.paid"]
    assert webhook["include_result"] is True, "what was changed meanwhile stays"
    assert webhook["outcomes"] is None
    assert refused.status_code == 422
    assert 'value="ftp://wrong.example/"' in refused.text


@pytest.mark.usefixtures("shared_service")
async def test_a_form_without_its_fields_is_refused_with_its_page(service: ServiceUnderTest) -> None:
    """A program may send one; it got a 500."""
    client, browser = await service.create_client("alice"), await sign_in(service, "alice")
    path = f"/webhooks/{await register(client)}/edit"

    registered = await browser.send("/webhooks/new", on="/webhooks/new")
    changed = await browser.send(path, on=path, shown_url=CALLBACK_URL)

    assert (registered.status_code, changed.status_code) == (422, 422)
    assert "url: Field required" in registered.text
    assert "url: " in changed.text


async def test_a_changed_form_that_cannot_be_saved_now_keeps_what_was_typed(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, browser = await service.create_client("alice"), await sign_in(service, "alice")
    path = f"/webhooks/{await register(client)}/edit"
    form = read_fields((await browser.open(path)).text) | {"description": "typed for a while"}

    async def refuse(*_: object) -> None:
        raise QuotaExceeded("Too many changes.", retry_after_seconds=1)

    monkeypatch.setattr(service.services.webhooks, "change_webhook", refuse)
    refused = await browser.http.post(f"/ui{path}", data=form, headers=FORM_HEADERS)

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "Too many changes." in refused.text
    assert 'value="typed for a while"' in refused.text


@pytest.mark.usefixtures("shared_service")
async def test_only_the_owner_of_a_webhook_gets_its_form(service: ServiceUnderTest) -> None:
    webhook_id = await register(await service.create_client("alice"))
    reader = await sign_in(service, "alice", scopes=frozenset({Scope.READ}))
    operator = await sign_in(service, "operator", scopes=DEFAULT_SCOPES | {Scope.ADMIN})

    assert (await reader.open(f"/webhooks/{webhook_id}/edit")).status_code == 403
    assert (await operator.open(f"/webhooks/{webhook_id}/edit")).status_code == 404
    assert f"{webhook_id}/edit" not in (await operator.open(f"/webhooks/{webhook_id}")).text
