"""Webhooks in the dashboard: their pages and their buttons."""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ringback.domain.circuit_breaker import CircuitBreaker, CircuitState
from ringback.domain.clock import seconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.verification import accept_proof
from ringback.services.deliveries import replays
from ringback.services.limits.quotas import Quotas
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service
from tests.support.viewer_browser import sign_in

OPERATOR = DEFAULT_SCOPES | {Scope.ADMIN}
READ_ONLY = frozenset({Scope.READ})


async def register(client: httpx.AsyncClient, **body: object) -> str:
    response = await client.post("/v1/webhooks", json={"url": CALLBACK_URL, **body})
    assert response.is_success, response.text
    return response.json()["id"]


async def end_call(service: ServiceUnderTest, client: httpx.AsyncClient, **body: object) -> str:
    call_id = (await client.post("/v1/calls", json=CALL_BODY | body)).json()["call"]["id"]
    await service.finish_call(call_id)
    return call_id


async def read_webhook(client: httpx.AsyncClient, webhook_id: str) -> dict[str, object]:
    return (await client.get(f"/v1/webhooks/{webhook_id}")).json()


async def test_the_list_shows_own_webhooks_with_what_they_receive_and_their_dead_deliveries(
    service: ServiceUnderTest,
) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    own, foreign = await register(alice, tool="git_log"), await register(bob)
    await end_call(service, alice)
    await service.settle_deliveries(await service.read_deliveries("alice"), DeliveryState.DEAD)

    page = (await (await sign_in(service, "alice")).open("/webhooks")).text

    assert own in page
    assert foreign not in page
    assert "calls with tool &#39;git_log&#39;" in page
    assert f"state=dead&amp;latest=true&amp;webhook_id={own}" in page
    assert "Dead ones that were sent again since are not counted." in page


async def test_the_page_of_a_calls_callback_says_who_registered_it(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    await end_call(service, alice, callback={"url": CALLBACK_URL})
    (delivery,) = await service.read_deliveries("alice")

    page = (await (await sign_in(service, "alice")).open(f"/webhooks/{delivery.webhook_id}")).text

    assert "<dt>Registered by</dt><dd>a call, as its callback</dd>" in page


async def test_a_failing_webhook_says_how_near_its_suspension_is(service: ServiceUnderTest) -> None:
    webhook_id = WebhookId(await register(await service.create_client("alice")))

    async def fail(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(webhook_id)
        assert webhook is not None
        failing = replace(webhook, failing_since=tx.now() - seconds(70 * 3600), alerted_percent=70)
        await tx.webhooks.update(failing, WebhookPart.HEALTH)

    await service.store.write(fail)
    page = (await (await sign_in(service, "alice")).open(f"/webhooks/{webhook_id}")).text

    assert "70 % of the way: a webhook without a success for 4 d is suspended" in page


@pytest.mark.usefixtures("shared_service")
async def test_the_page_names_the_pauses_of_an_own_schedule(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook_id = await register(alice, retries={"schedule": [1, 90, 7_200]})
    browser = await sign_in(service, "alice")

    assert "own schedule: after 1 s, 1 min 30 s, 2 h<" in (await browser.open(f"/webhooks/{webhook_id}")).text


@pytest.mark.usefixtures("shared_service")
async def test_the_page_says_how_the_challenge_of_the_url_stands(service: ServiceUnderTest) -> None:
    webhook_id = WebhookId(await register(await service.create_client("alice")))
    browser = await sign_in(service, "alice")
    page = f"/webhooks/{webhook_id}"

    async def end_attempt(tx: Transaction) -> None:
        challenge = await tx.challenges.get(webhook_id)
        assert challenge is not None
        await tx.challenges.save(replace(challenge, attempts=2, due_at=tx.now() + seconds(600)))

    async def prove(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(webhook_id)
        assert webhook is not None
        await accept_proof(tx, webhook, url=webhook.url)

    texts = [(await browser.open(page)).text]
    await browser.send(f"{page}/verify", on=page)
    for change in (end_attempt, prove):
        await service.store.write(change)
        texts.append((await browser.open(page)).text)

    assert "<dt>Challenge</dt>" not in texts[0]
    assert "not proven after 2 attempts; the next is due <time" in texts[1]
    assert "passed: the URL has proven <time" in texts[2]


async def test_a_failing_webhook_that_is_active_can_be_attempted_now(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook_id = WebhookId(await register(alice))
    await end_call(service, alice)
    browser = await sign_in(service, "alice")
    page = f"/webhooks/{webhook_id}"
    healthy = (await browser.open(page)).text

    async def fail(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(webhook_id)
        assert webhook is not None
        breaker = CircuitBreaker(failures=5, openings=1, paused_until=tx.now() + seconds(300))
        failing = replace(webhook, last_error="http_5xx", failing_since=tx.now(), breaker=breaker)
        await tx.webhooks.update(failing, WebhookPart.HEALTH)

    await service.store.write(fail)
    failing = (await browser.open(page)).text
    await browser.send(f"{page}/enable", on=page)
    attempted = await service.store.read(lambda tx: tx.webhooks.get(webhook_id))

    assert "Attempt now" not in healthy
    assert "Attempt now" in failing
    assert attempted is not None
    assert attempted.breaker.state(service.clock.now()) is CircuitState.HALF_OPEN


async def test_the_buttons_of_a_webhook_do_what_they_say(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook_id = await register(alice)
    browser = await sign_in(service, "alice")
    page = f"/webhooks/{webhook_id}"

    done = {name: await browser.send(f"{page}/{name}", on=page) for name in ("test", "pause")}
    paused = await read_webhook(alice, webhook_id)
    done |= {name: await browser.send(f"{page}/{name}", on=page) for name in ("resume", "disable")}
    disabled = await read_webhook(alice, webhook_id)
    done |= {name: await browser.send(f"{page}/{name}", on=page) for name in ("enable", "verify", "remove")}

    assert {name: response.status_code for name, response in done.items()} == dict.fromkeys(done, 303)
    assert done["pause"].headers["location"] == f"/ui{page}?done=webhook-paused"
    assert (paused["state"], paused["paused_at"] is None) == ("active", False)
    assert (disabled["state"], disabled["paused_at"]) == ("disabled", None)
    assert [each.event_id is not None for each in await service.read_deliveries("alice")] == [True]
    assert (await alice.get(f"/v1/webhooks/{webhook_id}")).status_code == 404
    assert "The webhook is removed" in (await browser.open("/webhooks", done="webhook-removed")).text


@pytest.mark.usefixtures("shared_service")
async def test_a_new_secret_is_in_the_response_of_its_rotation_and_on_no_other_page(service: ServiceUnderTest) -> None:
    webhook_id = await register(await service.create_client("alice"))
    browser = await sign_in(service, "alice")
    page = f"/webhooks/{webhook_id}/rotate-secret"

    rotated = await browser.send(page, on=page, overlap_hours="1")

    found = re.findall(r"whsec_[A-Za-z0-9+/=]+", rotated.text)
    assert len(found) == 1
    assert rotated.status_code == 200
    assert rotated.headers["cache-control"] == "no-store"
    assert "whsec_" not in (await browser.open(f"/webhooks/{webhook_id}")).text
    assert (await browser.send(page, on=page, overlap_hours="9999")).status_code == 422


async def test_a_registration_form_makes_one_webhook_however_often_it_is_sent(service: ServiceUnderTest) -> None:
    alice, browser = await service.create_client("alice"), await sign_in(service, "alice")
    form = {"idempotency_key": "form-1", "url": CALLBACK_URL, "events": "call.finished", "outcomes": "tool_error"}

    first = await browser.send("/webhooks/new", on="/webhooks/new", **form)
    again = await browser.send("/webhooks/new", on="/webhooks/new", **form)
    refused = await browser.send(
        "/webhooks/new", on="/webhooks/new", **form | {"url": "http://10.0.0.1/<x>", "idempotency_key": "form-2"}
    )

    (webhook,) = (await alice.get("/v1/webhooks")).json()["webhooks"]
    assert (first.status_code, again.status_code, refused.status_code) == (201, 200, 422)
    assert webhook["outcomes"] == ["tool_error"]
    assert "whsec_" in first.text
    assert 'value="http://10.0.0.1/&lt;x&gt;"' in refused.text


async def test_a_registration_form_that_is_sent_again_hours_later_leads_to_a_new_secret(
    service: ServiceUnderTest,
) -> None:
    browser = await sign_in(service, "alice")
    form = {"idempotency_key": "form-1", "url": CALLBACK_URL, "events": "call.finished"}
    await browser.send("/webhooks/new", on="/webhooks/new", **form)
    service.clock.advance(2 * 3600)

    again = await browser.send("/webhooks/new", on="/webhooks/new", **form)

    assert "whsec_" not in again.text
    assert "its secret is not shown again" in again.text
    assert re.search(r'<a href="/ui/webhooks/wh_\w+/rotate-secret">', again.text)


async def test_a_registration_form_that_cannot_be_sent_keeps_what_was_typed(tmp_path: Path) -> None:
    form = {"idempotency_key": "form-1", "url": CALLBACK_URL, "events": "call.finished"}
    async with running_service(tmp_path, quotas=Quotas(webhooks=1)) as service:
        browser = await sign_in(service, "alice")
        await browser.send("/webhooks/new", on="/webhooks/new", **form)

        back = await browser.send("/webhooks/new", on="/webhooks/new", **form | {"description": "typed later"})
        above = await browser.send(
            "/webhooks/new", on="/webhooks/new", **form | {"description": "typed later", "idempotency_key": "form-2"}
        )

    assert (back.status_code, above.status_code) == (409, 429)
    assert "has registered a webhook already, with other values" in back.text
    assert 'name="idempotency_key" value="form-1"' not in back.text
    assert 'name="idempotency_key" value="form-2"' in above.text
    assert back.text.count('value="typed later"') == above.text.count('value="typed later"') == 1


async def test_a_replay_counts_first_and_sends_then(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook_id = await register(alice)
    for _ in range(3):
        await end_call(service, alice)
    await service.settle_deliveries(await service.read_deliveries("alice"), DeliveryState.DEAD)
    browser = await sign_in(service, "alice")
    page = f"/webhooks/{webhook_id}/replay"

    counted = await browser.open(page, dead="1")
    unchanged = len(await service.read_deliveries("alice"))
    replayed = await browser.send(page, on=f"/webhooks/{webhook_id}", dead="1")
    since = await browser.open(page, since="2020-01-01T00:00")

    assert "<strong>3</strong>" in counted.text
    assert unchanged == 3
    assert replayed.headers["location"] == f"/ui/webhooks/{webhook_id}?done=webhook-replayed&sent=3"
    assert (
        "3 deliveries are queued to be sent again, with" in (await browser.http.get(replayed.headers["location"])).text
    )
    assert len(await service.read_deliveries("alice")) == 6
    assert "3 more have not ended yet" in since.text
    assert (await browser.open(page)).status_code == 422


async def test_a_replay_that_found_nothing_in_its_part_of_the_log_goes_on(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "REPLAY_BATCHES_MAX", 1)
    monkeypatch.setattr(replays, "REPLAY_BATCH_SIZE", 1)
    alice = await service.create_client("alice")
    for _ in range(3):
        await end_call(service, alice)
    webhook_id = await register(alice)
    browser = await sign_in(service, "alice")
    page = f"/webhooks/{webhook_id}/replay"

    counted = await browser.open(page, since="2020-01-01T00:00")
    replayed = await browser.send(page, on=f"/webhooks/{webhook_id}", since="2020-01-01T00:00")

    assert "this one found none" in counted.text
    assert "Look further</button>" in counted.text
    assert replayed.headers["location"].startswith(f"/ui{page}?cursor=")


async def test_a_key_without_the_right_sees_no_button_and_its_forms_are_refused(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook_id = await register(alice)
    await end_call(service, alice)
    (delivery,) = await service.read_deliveries("alice")
    reader = await sign_in(service, "alice", scopes=READ_ONLY)

    for path in ("/webhooks", f"/webhooks/{webhook_id}", "/deliveries?state=dead", f"/deliveries/{delivery.id}"):
        page = (await reader.http.get(f"/ui{path}")).text
        main = page[page.index("<main") : page.index("</main>")]
        assert 'method="post"' not in main, path
        assert "/ui/webhooks/new" not in main
        assert "/redeliver" not in main
    for path in ("pause", "test", "remove", "rotate-secret", "replay"):
        refused = await reader.send(f"/webhooks/{webhook_id}/{path}", on="/webhooks", dead="1")
        assert refused.status_code == 403, path
    assert (await reader.open("/webhooks/new")).status_code == 403


@pytest.mark.usefixtures("shared_service")
async def test_an_operator_acts_for_the_owner_and_gets_no_secret_of_others(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhook_id = await register(alice)
    operator = await sign_in(service, "root", scopes=OPERATOR)
    page = f"/webhooks/{webhook_id}"

    paused = await operator.send(f"{page}/pause", on=page)
    rotated = await operator.send(f"{page}/rotate-secret", on=page)

    assert paused.status_code == 303
    assert (await read_webhook(alice, webhook_id))["paused_at"] is not None
    assert rotated.status_code == 404
    assert "Rotate the secret" not in (await operator.open(page)).text
    assert "alice" in (await operator.open("/webhooks")).text
    await operator.send(f"{page}/resume", on=page)
    for text in [(await operator.open(path)).text for path in (page, "/webhooks")]:
        assert "of alice" in text
        assert "yours" not in text


async def test_pages_of_foreign_and_of_unknown_webhooks_and_deliveries_are_the_same(service: ServiceUnderTest) -> None:
    bob = await service.create_client("bob")
    webhook_id = await register(bob)
    await end_call(service, bob)
    (delivery,) = await service.read_deliveries("bob")
    browser = await sign_in(service, "alice")

    for foreign, unknown in (
        (f"/webhooks/{webhook_id}", f"/webhooks/wh_{'0' * 26}"),
        (f"/webhooks/{webhook_id}/replay?dead=1", f"/webhooks/wh_{'0' * 26}/replay?dead=1"),
        (f"/deliveries/{delivery.id}", f"/deliveries/dlv_{'0' * 26}"),
    ):
        seen, missing = await browser.http.get(f"/ui{foreign}"), await browser.http.get(f"/ui{unknown}")
        assert (seen.status_code, seen.text) == (404, missing.text)


async def test_webhooks_are_listed_by_their_state(service: ServiceUnderTest) -> None:
    client, browser = await service.create_client("alice"), await sign_in(service, "alice")
    active, disabled = await register(client), await register(client, tool="other")
    await client.patch(f"/v1/webhooks/{disabled}", json={"state": "disabled"})

    page = (await browser.open("/webhooks", state="disabled")).text
    listed = (await client.get("/v1/webhooks", params={"state": "disabled"})).json()["webhooks"]

    assert disabled in page
    assert active not in page
    assert [each["id"] for each in listed] == [disabled]
