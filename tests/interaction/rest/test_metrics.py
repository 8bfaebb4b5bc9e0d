"""Metrics in Prometheus' text format."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Scope
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service

Samples = dict[tuple[str, ...], float]


@pytest.fixture
async def admin(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def samples(client: httpx.AsyncClient) -> Samples:
    """Every sample by its name and the values of its labels."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


async def test_metrics_count_the_rows_of_the_store(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    for client in (alice, bob):
        await client.post("/v1/webhooks", json={"url": CALLBACK_URL})
        await service.finish_call((await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    await alice.post("/v1/calls", json=CALL_BODY)
    service.clock.advance(30)

    found = await samples(admin)

    assert (found["ringback_calls", "working"], found["ringback_calls", "completed"]) == (1, 2)
    assert found["ringback_calls", "failed"] == 0
    assert (found["ringback_open_deliveries", "pending"], found["ringback_open_deliveries", "held"]) == (2, 0)
    assert 30 <= found["ringback_oldest_due_delivery_age_seconds",] < 40
    assert found["ringback_subscriptions",] == 0
    assert found["ringback_events_total",] == 2


async def test_a_scrape_with_parameters_gets_all_metrics(admin: httpx.AsyncClient) -> None:
    """Prometheus sends the `params` of its job to each target, and exporters use them to choose collectors."""
    scraped = await admin.get("/metrics?collect[]=node&collect[]=process&name[]=up")

    assert scraped.status_code == 200, scraped.text
    assert "ringback_calls" in scraped.text


async def test_metrics_show_which_upstreams_are_paused(service: ServiceUnderTest, admin: httpx.AsyncClient) -> None:
    before = await samples(admin)
    await admin.post("/v1/upstreams/git/pause")
    paused = await samples(admin)

    assert before["ringback_upstream_intake", "open", "git"] == 1
    assert (paused["ringback_upstream_intake", "open", "git"], paused["ringback_upstream_intake", "paused", "git"]) == (
        0,
        1,
    )


async def test_metrics_show_the_states_of_upstreams_and_workers(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    before = await samples(admin)
    service.failing_workers.add("dispatcher")
    service.failing_endpoints |= {"/mcp/git", "/mcp"}
    after = await samples(admin)

    assert before["ringback_upstream_state", "ready", "git"] == 1
    assert before["ringback_upstream_state", "failing", "git"] == 0
    assert before["ringback_upstream_calls_in_flight", "git"] == 0
    assert (before["ringback_failing_workers",], after["ringback_failing_workers",]) == (0, 1)
    assert (before["ringback_failing_endpoints",], after["ringback_failing_endpoints",]) == (0, 2)
    assert before["ringback_open_streams",] == 0


async def test_an_idle_service_has_nothing_overdue(admin: httpx.AsyncClient) -> None:
    assert (await samples(admin))["ringback_oldest_due_delivery_age_seconds",] == 0


@pytest.mark.requirement("R25")
async def test_metrics_need_the_scope_metrics_and_it_allows_nothing_else(service: ServiceUnderTest) -> None:
    anonymous = await service.create_anonymous_client()
    others = await service.create_client("alice", scopes=frozenset(Scope) - {Scope.ADMIN, Scope.METRICS})
    scraper = await service.create_client("prometheus", scopes=frozenset({Scope.METRICS}))

    assert (await anonymous.get("/metrics")).status_code == 401
    assert (await others.get("/metrics")).status_code == 403
    assert (await scraper.get("/metrics")).status_code == 200
    for path in ("/v1/calls", "/v1/webhooks", "/v1/deliveries", "/v1/events", "/v1/upstreams"):
        assert (await scraper.get(path)).status_code == 403


async def test_metrics_count_the_ends_of_calls_by_upstream_and_outcome(
    service: ServiceUnderTest, alice: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    for _ in range(2):
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])

    found = await samples(admin)

    assert sum(value for name, value in found.items() if name[0] == "ringback_ended_calls_total") == 2
    assert (found["ringback_call_seconds_count",], found["ringback_call_seconds_bucket", "+Inf"]) == (2, 2)


async def test_metrics_show_failing_webhooks_by_state_and_how_long_calls_are_queued(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    for client in (alice, bob, alice):
        await client.post("/v1/webhooks", json={"url": CALLBACK_URL})
    first, second, _ = (await admin.get("/v1/webhooks", params={"principal": "*"})).json()["webhooks"]
    await set_failing(service, first["id"], WebhookState.ACTIVE)
    await set_failing(service, second["id"], WebhookState.SUSPENDED)
    await alice.post("/v1/calls", json=CALL_BODY)
    service.clock.advance(60)

    found = await samples(admin)

    states = ("active", "suspended", "pending_verification")
    assert [found["ringback_failing_webhooks", state] for state in states] == [1, 1, 0]
    assert 60 <= found["ringback_oldest_queued_call_age_seconds",] < 70


async def set_failing(service: ServiceUnderTest, webhook_id: str, state: WebhookState) -> None:
    async def update(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(WebhookId(webhook_id))
        assert webhook is not None
        failing = replace(webhook, state=state, last_error="timeout")
        await tx.webhooks.update(failing, WebhookPart.HEALTH, WebhookPart.STATE)

    await service.store.write(update)


async def test_metrics_need_no_key_with_authentication_off(tmp_path: Path) -> None:
    async with running_service(tmp_path, auth="off") as service:
        assert (await samples(await service.create_anonymous_client()))["ringback_events_total",] == 0
