"""The first page: open work, charts of the last hours, and links to what needs someone."""

import re
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import ALL_SCOPES
from ringback.domain.webhook_rows import WebhookPart
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import ViewerBrowser, sign_in


async def start_call(service: ServiceUnderTest, principal: str) -> str:
    client = await service.create_client(principal)
    return (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]


async def read_cards(browser: ViewerBrowser) -> dict[str, str]:
    page = (await browser.open("")).text
    cards = re.findall(r'<li class="card stat[^"]*">.*?</li>', page, flags=re.DOTALL)
    texts = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", card)).strip() for card in cards]
    return {re.split(r" \d", text)[0]: text for text in texts}


async def mark_failing(tx: Transaction, webhook_id: WebhookId) -> None:
    webhook = await tx.webhooks.get(webhook_id)
    assert webhook is not None
    await tx.webhooks.update(replace(webhook, last_error="timeout"), WebhookPart.HEALTH)


async def test_the_pause_of_an_upstream_is_on_the_first_page_on_the_page_of_its_call_and_in_the_insights(
    service: ServiceUnderTest,
) -> None:
    operator, call = await service.create_client("operator", scopes=ALL_SCOPES), await start_call(service, "alice")
    alice = await sign_in(service, "alice")
    page = f"/calls/{call}"

    await operator.post("/v1/upstreams/git/pause")
    cards, paused = await read_cards(alice), (await alice.open(page)).text
    insights = (await operator.get("/v1/insights")).json()
    await operator.post("/v1/upstreams/git/resume")
    resumed = (await alice.open(page)).text

    assert cards["Calls in progress"] == "Calls in progress 1 1 waits for a runner (paused: git)"
    assert insights["paused_upstreams"] == ["git"]
    assert "an operator has paused its upstream, git." in paused
    assert "The call waits in the queue for its turn." in resumed


async def test_the_first_page_counts_the_calls_of_the_viewer_and_draws_those_that_ended(
    service: ServiceUnderTest,
) -> None:
    await start_call(service, "bob")
    await start_call(service, "alice")
    await service.finish_call(await start_call(service, "alice"))
    alice = await sign_in(service, "alice")

    page, cards = (await alice.open("")).text, await read_cards(alice)

    assert cards["Calls in progress"] == "Calls in progress 1 1 waits for a runner"
    assert "In the last 24 hours: 1 result." in page
    assert re.search(r"<dt>Calls started</dt><dd>2 ", page)
    assert "100 % with a result" in page
    assert "Queue depth" not in page, "the samples are of all principals"


async def test_an_operator_sees_the_work_of_all_principals_or_of_one(service: ServiceUnderTest) -> None:
    for principal in ("alice", "bob", "bob"):
        await start_call(service, principal)
    operator = await sign_in(service, "operator", scopes=ALL_SCOPES)

    everything, of_bob = (await operator.open("")).text, (await operator.open("", principal="bob")).text

    assert "3 wait for a runner" in everything
    assert "Queue depth, the largest sample of each hour (UTC)" in everything
    assert "2 wait for a runner" in of_bob
    assert 'of the principal <code class="id">bob</code> only' in of_bob
    assert "/ui/calls?status=working&amp;principal=bob" in of_bob


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "path", ["", "/audit", "/live", "/sessions", "/session/live?client_session_id=s1", "/lookup?q=x"]
)
@pytest.mark.parametrize(
    ("principal", "reason"), [("a\x00b", "The principal is not valid."), ("x" * 129, "The principal has at most 128")]
)
async def test_a_name_that_no_principal_can_have_is_refused_on_each_page_of_an_operator(
    service: ServiceUnderTest, path: str, principal: str, reason: str
) -> None:
    """PostgreSQL cannot read a NUL: a list that follows such a principal would log an error every two seconds."""
    operator = await sign_in(service, "operator", scopes=ALL_SCOPES)

    refused = await operator.http.get(f"/ui{path}{'&' if '?' in path else '?'}{urlencode({'principal': principal})}")

    assert refused.status_code == 422
    assert reason in refused.text


async def test_a_queue_that_stands_still_and_a_failing_webhook_are_marked(service: ServiceUnderTest) -> None:
    client = await service.create_client("alice")
    webhook = (await client.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    await start_call(service, "alice")
    await service.store.write(lambda tx: mark_failing(tx, WebhookId(webhook)))
    service.clock.advance(601)
    operator = await sign_in(service, "operator", scopes=ALL_SCOPES)

    page, cards = (await operator.open("")).text, await read_cards(operator)

    assert "1 waits for a runner, the oldest for 10 min" in cards["Calls in progress"]
    assert cards["Failing webhooks"] == "Failing webhooks 1 by their last attempt"
    assert f'href="/ui/webhooks/{webhook}"' in page
    assert 'class="card stat bad"' in page
    assert 'class="card stat warn"' in page


async def test_calls_that_start_later_are_named_among_those_in_progress(service: ServiceUnderTest) -> None:
    client = await service.create_client("alice")
    await start_call(service, "alice")
    for delay in (60, 120):
        later = service.clock.now() + timedelta(seconds=delay)
        await client.post("/v1/calls", json=CALL_BODY | {"not_before": later.isoformat()})
    browsers = [await sign_in(service, "alice"), await sign_in(service, "operator", scopes=ALL_SCOPES)]

    for browser in browsers:
        cards = await read_cards(browser)
        assert cards["Calls in progress"] == "Calls in progress 3 1 waits for a runner; 2 start later"


async def test_a_new_call_shows_its_callbacks_and_whether_its_client_came_back(service: ServiceUnderTest) -> None:
    client = await service.create_client("alice")
    started = (await client.post("/v1/calls", json={**CALL_BODY, "callback": {"url": CALLBACK_URL}})).json()
    await service.finish_call(started["call"]["id"])
    alice = await sign_in(service, "alice")

    before = (await alice.open("")).text
    await client.post("/v1/resume", json={"resume_token": started["resume_token"]})
    await service.services.call_resumes.write_pending()
    after = (await alice.open("")).text

    assert '<span class="badge busy">pending</span>' in before
    assert "not yet" in before
    assert "not yet" not in after


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("hours", "heading"), [("168", "7 days"), ("24", "24 hours"), ("1e9", "24 hours"), ("", "24 hours")]
)
async def test_the_period_is_a_day_or_a_week(service: ServiceUnderTest, hours: str, heading: str) -> None:
    alice = await sign_in(service, "alice")

    assert f"<h2>The last {heading}</h2>" in (await alice.open("", hours=hours)).text
