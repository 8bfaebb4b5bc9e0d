"""Deliveries in the dashboard: the list, one delivery, and redelivery of one and of all that match."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.clock import seconds
from ringback.domain.delivery import Attempt, Delivery, DeliveryState
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.domain.webhook_rows import WebhookPart
from ringback.services.deliveries import bulk_redelivery
from ringback.ui.formats import format_time
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import sign_in

OPERATOR = DEFAULT_SCOPES | {Scope.ADMIN}


async def make_dead(service: ServiceUnderTest, principal: str, number: int) -> tuple[httpx.AsyncClient, list[Delivery]]:
    """A client with a webhook whose deliveries of so many ended calls are dead."""
    client = await service.create_client(principal)
    await client.post("/v1/webhooks", json={"url": CALLBACK_URL})
    for _ in range(number):
        call_id = (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        await service.finish_call(call_id)
    await service.settle_deliveries(await service.read_deliveries(principal), DeliveryState.DEAD)
    return client, await service.read_deliveries(principal)


async def add_attempt(service: ServiceUnderTest, delivery: Delivery, **values: Any) -> None:
    attempt = Attempt(
        id=service.ids.new_attempt_id(),
        delivery_id=delivery.id,
        number=1,
        started_at=service.clock.now() - seconds(3),
        duration_ms=1234,
        category=AttemptCategory.HTTP_5XX,
        status_code=503,
    )
    await service.store.write(lambda tx: tx.delivery_queue.insert_attempts([replace(attempt, **values)]))


async def test_a_dead_letter_is_found_read_and_sent_again(service: ServiceUnderTest) -> None:
    _, (dead,) = await make_dead(service, "alice", 1)
    await add_attempt(service, dead, excerpt="<script>alert(1)</script>", detail="a reverse proxy")
    browser = await sign_in(service, "alice")

    listed = await browser.open("/deliveries", state="dead")
    page = await browser.open(f"/deliveries/{dead.id}")
    sent = await browser.send(f"/deliveries/{dead.id}/redeliver", on=f"/deliveries/{dead.id}")

    newest = (await service.read_deliveries("alice"))[0]
    assert dead.id in listed.text
    assert "The receiver failed; look at its log." in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "1.2 s" in page.text
    assert (newest.generation, newest.state) == (2, DeliveryState.PENDING)
    assert sent.headers["location"] == f"/ui/deliveries/{newest.id}?done=delivery-redelivered"


async def test_a_delivery_that_was_sent_again_names_its_latest_and_is_not_sent_a_third_time(
    service: ServiceUnderTest,
) -> None:
    _, (dead,) = await make_dead(service, "alice", 1)
    browser = await sign_in(service, "alice")
    path = f"/deliveries/{dead.id}"
    await browser.send(f"{path}/redeliver", on=path)
    await service.settle_deliveries(await service.read_deliveries("alice"), DeliveryState.DEAD)
    latest = (await service.read_deliveries("alice"))[0]

    page = (await browser.open(path)).text
    latest_page = (await browser.open(f"/deliveries/{latest.id}")).text
    lists = [await browser.open("/deliveries", state="dead"), await browser.open(f"/webhooks/{dead.webhook_id}")]
    unsent = (await browser.open("/deliveries", state="dead", latest="true")).text
    stale = await browser.send(f"{path}/redeliver", on="/deliveries")

    assert "This delivery was sent again" in page
    assert f'href="/ui/deliveries/{latest.id}"' in page
    assert f'action="/ui{path}/redeliver"' not in page
    assert f'action="/ui/deliveries/{latest.id}/redeliver"' in latest_page
    assert [
        each.text.count(f'sent again: <a class="badge-link" href="/ui/deliveries/{latest.id}">') for each in lists
    ] == [1, 1]
    assert f'latest=true&amp;webhook_id={dead.webhook_id}">1</a>' in lists[1].text
    assert [dead.id in unsent, latest.id in unsent] == [False, True]
    assert stale.headers["location"] == f"/ui/deliveries/{latest.id}?done=delivery-sent-before"
    assert len(await service.read_deliveries("alice")) == 2


@pytest.mark.usefixtures("shared_service")
async def test_the_tabs_of_an_operator_stay_with_the_principal_of_the_filter(service: ServiceUnderTest) -> None:
    operator = await sign_in(service, "root", scopes=OPERATOR)

    of_all = (await operator.open("/deliveries", state="held")).text
    of_alice = (await operator.open("/deliveries", state="held", principal="Alice & Bob")).text
    dead = await operator.open("/deliveries", state="dead", latest="True", principal="Alice & Bob")

    assert '<a href="/ui/deliveries?state=held" aria-current="page">Held</a>' in of_all
    assert '<a href="/ui/deliveries">All</a>' in of_all
    assert '<a href="/ui/deliveries?principal=Alice+%26+Bob">All</a>' in of_alice
    assert '<a href="/ui/deliveries?state=held&amp;principal=Alice+%26+Bob" aria-current="page">Held</a>' in of_alice
    assert '&amp;principal=Alice+%26+Bob" aria-current="page">Dead letters</a>' in dead.text


async def test_behind_an_open_breaker_the_next_attempt_is_at_the_end_of_its_pause(service: ServiceUnderTest) -> None:
    client = await service.create_client("alice")
    webhook_id = WebhookId((await client.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"])
    await service.finish_call((await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    (delivery,) = await service.read_deliveries("alice")
    service.clock.advance(60)
    pause_end = service.clock.now() + seconds(300)

    async def open_breaker(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(webhook_id)
        assert webhook is not None
        breaker = CircuitBreaker(failures=5, openings=1, paused_until=pause_end)
        await tx.webhooks.update(replace(webhook, breaker=breaker), WebhookPart.HEALTH)

    browser = await sign_in(service, "alice")
    waiting, webhook_page = await browser.open("/deliveries"), f"/webhooks/{webhook_id}"
    await service.store.write(open_breaker)

    assert "waits for its webhook" in waiting.text
    for path in (f"/deliveries/{delivery.id}", webhook_page, f"/deliveries?webhook_id={webhook_id}"):
        page = (await browser.http.get(f"/ui{path}")).text
        assert f'after {format_time(pause_end)} <span class="muted">(circuit breaker)' in page, path
    assert f"<dt>Nothing is sent until</dt><dd>{format_time(pause_end)}" in (await browser.open(webhook_page)).text
    service.clock.advance(301)
    assert "Nothing is sent until" not in (await browser.open(webhook_page)).text


async def test_no_page_shows_the_body_of_a_delivery(service: ServiceUnderTest) -> None:
    _, (dead,) = await make_dead(service, "alice", 1)
    body = (await service.read_deliveries("alice"))[0].body
    browser = await sign_in(service, "alice")

    for path in ("/deliveries", f"/deliveries/{dead.id}", f"/webhooks/{dead.webhook_id}"):
        page = await browser.open(path)
        assert b"resume_token" in body
        assert "resume_token" not in page.text, path


async def test_all_that_match_are_counted_and_then_sent_over_several_requests(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dead = await make_dead(service, "alice", 5)
    monkeypatch.setattr(bulk_redelivery, "REDELIVERIES_MAX", 2)
    monkeypatch.setattr(bulk_redelivery, "REPLAY_BATCH_SIZE", 2)
    browser = await sign_in(service, "alice")
    filters = {"state": "dead", "webhook_id": dead[0].webhook_id}

    counted = await browser.open("/deliveries/redeliver", **filters)
    places: list[httpx.URL] = []
    location = httpx.URL("/ui/deliveries/redeliver", params=filters)
    while location.path == "/ui/deliveries/redeliver":
        sent = await browser.send("/deliveries/redeliver", on="/deliveries", **dict(location.params))
        location = httpx.URL(sent.headers["location"])
        places.append(location)

    states = [each.state for each in await service.read_deliveries("alice")]
    assert "<strong>2 or more</strong>" in counted.text
    assert [place.params["sent"] for place in places] == ["2", "4", "5"]
    assert states.count(DeliveryState.PENDING) == 5
    assert "5 deliveries are queued to be sent again, with" in (await browser.http.get(str(places[-1]))).text
    assert "4 deliveries are queued to be sent again so far" in (await browser.http.get(str(places[1]))).text


async def test_a_filter_without_one_ended_state_offers_no_bulk_redelivery(service: ServiceUnderTest) -> None:
    await make_dead(service, "alice", 1)
    browser = await sign_in(service, "alice")
    operator = await sign_in(service, "root", scopes=OPERATOR)

    assert "Redeliver all that match" not in (await browser.open("/deliveries")).text
    assert "Redeliver all that match" in (await browser.open("/deliveries", state="dead")).text
    assert (await browser.open("/deliveries/redeliver", state="held")).status_code == 422
    assert "Redeliver all that match" not in (await operator.open("/deliveries", state="dead")).text
    assert (await operator.open("/deliveries/redeliver", state="dead")).status_code == 422
    named = await operator.open("/deliveries/redeliver", state="dead", principal="alice")
    assert "<strong>1</strong>" in named.text


async def test_all_that_match_are_exactly_those_that_the_filtered_list_shows(service: ServiceUnderTest) -> None:
    _, dead = await make_dead(service, "alice", 2)
    browser = await sign_in(service, "alice")
    filters = {"state": "dead", "until": dead[-1].created_at.strftime("%Y-%m-%dT%H:%M"), "since": "2020-01-01T00:00"}
    failed = {"state": "dead", "category": "http_5xx"}

    for query in (filters, failed):
        assert "Redeliver all that match" in (await browser.open("/deliveries", **query)).text
        assert dead[0].id not in (await browser.open("/deliveries", **query)).text
        assert "<strong>0</strong>" in (await browser.open("/deliveries/redeliver", **query)).text
    for more in ({"min_attempts": "2"}, {"id_prefix": "dlv_0"}):
        assert "Redeliver all that match" not in (await browser.open("/deliveries", **failed | more)).text
        assert (await browser.open("/deliveries/redeliver", **failed | more)).status_code == 422


async def test_another_state_leaves_the_dead_letters_although_the_form_keeps_their_filter(
    service: ServiceUnderTest,
) -> None:
    """Its field for that is hidden, so a viewer could not take it back."""
    browser = await sign_in(service, "alice")
    dead = await browser.open("/deliveries", state="dead", latest="true")
    assert '<input type="hidden" name="latest" value="true">' in dead.text

    held = await browser.open("/deliveries", state="held", latest="true", category="")
    every = await browser.open("/deliveries", state="", latest="true")
    typed = await browser.open("/deliveries", latest="true")

    assert [page.status_code for page in (held, every, typed)] == [200, 200, 422]
    assert 'name="latest"' not in held.text + every.text


@pytest.mark.usefixtures("shared_service")
async def test_values_that_rest_refuses_are_refused_with_a_page(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "root", scopes=OPERATOR)

    for path in (
        "/deliveries?state=none",
        "/deliveries?cursor=none",
        "/deliveries?call_id=%00",
        "/deliveries?principal=%00",
        "/events?principal=a%0ab",
        "/events?name=%3Cscript%3E",
        "/webhooks?health=none",
        "/webhooks?cursor=MTpjYWxsczp4",
        f"/deliveries?webhook_id={'x' * 100}",
    ):
        page = await browser.http.get(f"/ui{path}")
        assert page.status_code in {400, 422}, path
        assert "<script>" not in page.text


@pytest.mark.usefixtures("shared_service")
async def test_the_fields_for_times_keep_what_the_list_was_filtered_by(service: ServiceUnderTest) -> None:
    """A browser shows an empty field for a value with an offset, and the next press of the button would drop the filter."""
    browser = await sign_in(service, "alice")

    listed = await browser.open("/deliveries", since="2026-11-20T07:00", until="2026-11-24T07:00:30Z")

    assert 'name="since" type="datetime-local" value="2026-11-20T07:00"' in listed.text
    assert 'name="until" type="datetime-local" value="2026-11-24T07:00:30"' in listed.text
    assert listed.text.count('step="any"') == 2  # without it, browsers refuse to send seconds
