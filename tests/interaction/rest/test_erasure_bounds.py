"""An erasure removes what its target had at the request, and what its calls got later. Newer rows stay."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from ringback.domain.call import Progress
from ringback.domain.erasure import ErasureState
from ringback.domain.portal_links import PORTAL_LINK_SECONDS_MAX
from ringback.domain.principal import ALL_SCOPES, Caller, Principal, Scope
from ringback.services import erasure_batches
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.events.event_publishing import PublishedEvent
from tests.support.databases import query_rows
from tests.support.erasures import BODY, PRIVATE, RESULT, SESSION, find_private_text, run_call, start
from tests.support.service import CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest

ROUNDS_MAX = 15
"""Rounds of the janitor that finish any erasure of these tests."""


@pytest.fixture
async def admin(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


@pytest.fixture
def one_batch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request erases one batch, so that the test can change rows before the next one."""
    monkeypatch.setattr("ringback.services.erasures.INLINE_BATCHES_MAX", 1)


async def run_janitor(service: ServiceUnderTest) -> None:
    """Run rounds until no erasure is open, and one more, which must not remove what is newer."""
    for _ in range(ROUNDS_MAX):
        is_last = not query_rows(service.folder, "SELECT 1 FROM erasures WHERE finished_at IS NULL")
        await service.run_janitor()
        if is_last:
            break


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_call_that_is_newer_than_the_erasure_of_its_session_keeps_its_callback(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    for _ in range(3):
        await run_call(service, alice)
    assert (await alice.delete(SESSION)).status_code == 202
    service.clock.advance(5)

    later = await run_call(service, alice)
    await run_janitor(service)

    assert (await alice.get(f"/v1/calls/{later}")).status_code == 200
    assert [delivery.call_id for delivery in await service.read_deliveries("alice")] == [later]
    events = (await alice.get("/v1/events")).json()["events"]
    assert [event["data"].get("erased") for event in events] == [True, True, True, None]


async def test_events_of_calls_that_an_erasure_of_their_principal_cancels_are_erased_too(
    service: ServiceUnderTest, alice: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    await start(alice)
    running = await start(alice)
    await service.mark_dispatched(running)

    waiting = await admin.delete("/v1/principals/alice", params={"cancel": "true"})
    await service.finish_call(running, RESULT)
    await run_janitor(service)

    assert (await admin.get(waiting.headers["location"])).json()["state"] == "finished"
    assert find_private_text(service) == []


async def test_a_call_with_more_later_rows_than_a_batch_is_erased_in_several(
    service: ServiceUnderTest, alice: httpx.AsyncClient, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = [await start(alice), await start(alice)]
    for call_id in running:
        await service.mark_dispatched(call_id)
    waiting = await admin.delete("/v1/principals/alice", params={"cancel": "true"})
    service.clock.advance(5)
    again = await service.create_client("alice")
    for number in range(3):
        await again.post("/v1/webhooks", json={"url": f"{CALLBACK_URL}/{number}"})
    for call_id in running:
        await service.finish_call(call_id, RESULT)
    assert len(await service.read_deliveries("alice")) == 6
    monkeypatch.setattr(erasure_batches, "ERASE_BATCH_SIZE", 2)

    await run_janitor(service)

    finished = (await admin.get(waiting.headers["location"])).json()
    assert (finished["state"], finished["calls"], finished["deliveries"], finished["events"]) == ("finished", 2, 6, 2)
    assert len((await again.get("/v1/webhooks")).json()["webhooks"]) == 3
    assert find_private_text(service) == []


async def test_a_key_that_is_newer_than_the_erasure_of_its_principal_stays(
    service: ServiceUnderTest, alice: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    running = await start(alice)
    await service.mark_dispatched(running)
    waiting = await admin.delete("/v1/principals/alice", params={"cancel": "true"})
    service.clock.advance(5)
    again = await service.create_client("alice")

    await run_janitor(service)

    assert (await alice.get("/v1/calls")).status_code == 401
    assert (await again.get("/v1/calls")).status_code == 200
    assert (await admin.get(waiting.headers["location"])).json()["state"] == "finished"


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_batch_erases_no_more_bytes_of_calls_than_its_bound(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure_batches, "REMOVED_BYTES_MAX", 1)
    for _ in range(3):
        await run_call(service, alice)

    first = await alice.delete(SESSION)

    assert (first.status_code, first.json()["calls"]) == (202, 1)
    await run_janitor(service)
    finished = (await alice.get(first.headers["location"])).json()
    assert (finished["state"], finished["calls"], finished["events"]) == ("finished", 3, 3)


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_batch_of_expired_calls_deletes_no_more_deliveries_than_its_bound(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await alice.post("/v1/webhooks", json={"url": f"{CALLBACK_URL}/{number}"})
    for _ in range(4):
        await run_call(service, alice)
    service.clock.advance(RETENTION_SECONDS + 60)
    for _ in range(3):
        await service.run_janitor()
    monkeypatch.setattr(erasure_batches, "ERASE_BATCH_SIZE", 4)

    batches = [(await alice.delete(SESSION)).json() for _ in range(4)]

    assert [batch["deliveries"] for batch in batches] == [4, 8, 12, 12]
    assert (batches[-1]["state"], batches[-1]["events"]) == ("erasing", 4)


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_repeated_erasure_covers_what_is_newer_than_the_first_one(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for _ in range(3):
        await run_call(service, alice)
    first = (await alice.delete(SESSION)).json()
    service.clock.advance(5)
    later = await run_call(service, alice)

    second, third = [(await alice.delete(SESSION)).json() for _ in range(2)]
    await run_janitor(service)

    assert first["id"] != second["id"] == third["id"]
    assert (await alice.get(f"/v1/calls/{later}")).status_code == 410


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_repeated_erasure_with_cancel_cancels_a_newer_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for _ in range(3):
        await run_call(service, alice)
    await alice.delete(SESSION)
    service.clock.advance(5)
    queued = await start(alice)

    refused = await alice.delete(SESSION)
    accepted = await alice.delete(SESSION, params={"cancel": "true"})
    repeated = await alice.delete(SESSION, params={"cancel": "true"})
    await run_janitor(service)

    assert (refused.status_code, accepted.status_code) == (409, 202)
    assert repeated.json()["id"] == accepted.json()["id"]
    assert (await alice.get(f"/v1/calls/{queued}")).status_code == 410


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_webhook_that_is_newer_than_an_open_erasure_starts_another_one(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for _ in range(3):
        await run_call(service, alice)
    first = (await alice.delete(SESSION)).json()
    service.clock.advance(5)
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "client_session_id": BODY["client_session_id"]})

    second = (await alice.delete(SESSION)).json()
    await run_janitor(service)

    assert first["id"] != second["id"]
    assert (await alice.get("/v1/webhooks")).json()["webhooks"] == []


@pytest.mark.usefixtures("one_batch_at_once")
async def test_a_batch_erases_many_calls_of_a_session_with_their_own_webhooks(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for number in range(5):
        await run_call(service, alice, callback={"url": f"{CALLBACK_URL}/{number}"})

    erased = (await alice.delete(SESSION)).json()

    assert [erased[name] for name in ("calls", "deliveries", "events", "webhooks")] == [5, 5, 5, 5]
    assert find_private_text(service, but_for=frozenset({"erasures"})) == []


async def test_calls_with_more_events_than_a_batch_are_erased_whole(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for events in (1, 5, 1, 3):
        call_id = await start(alice)
        await service.mark_dispatched(call_id)
        for number in range(events - 1):
            await service.record_progress(call_id, Progress(progress=float(number), message="private-7f3a"))
        await service.finish_call(call_id, RESULT)
    monkeypatch.setattr(erasure_batches, "ERASE_BATCH_SIZE", 2)

    await alice.delete(SESSION)
    await run_janitor(service)

    assert find_private_text(service, but_for=frozenset({"erasures"})) == []
    events = (await alice.get("/v1/events")).json()["events"]
    assert [event["data"]["erased"] for event in events] == [True] * 10
    assert service.count_rows()["calls"] == 0


async def publish(service: ServiceUnderTest, caller: Caller) -> None:
    event = PublishedEvent(name="order.paid", data={"text": PRIVATE})
    await service.services.event_publishing.publish_events(caller, [event])


async def make_link(service: ServiceUnderTest, caller: Caller) -> None:
    links = service.services.portal_links
    await links.create_link(caller, client_session_id=PRIVATE, lifetime_seconds=PORTAL_LINK_SECONDS_MAX)


@pytest.mark.parametrize("add", [publish, make_link])
async def test_a_repeated_erasure_includes_what_a_principal_without_a_key_has_made_since_the_first_one(
    service: ServiceUnderTest, add: Callable[[ServiceUnderTest, Caller], Awaitable[None]]
) -> None:
    """The principal of an access token has no key, whose age would show that it has gone on."""
    carol = Caller(principal=Principal("carol"), scopes=ALL_SCOPES)
    request = StartCallRequest(upstream="git", tool="git_log", arguments={"repo_path": "."})
    started = await service.services.calls.start_call(carol, request)
    await service.mark_dispatched(started.call.id)
    operator = replace(carol, principal=Principal("operator"))
    first = await service.services.erasures.erase_principal(operator, "carol", cancel=True)
    same = await service.services.erasures.erase_principal(operator, "carol", cancel=True)
    service.clock.advance(60)
    await add(service, carol)
    second = await service.services.erasures.erase_principal(operator, "carol", cancel=True)
    await service.finish_call(started.call.id, RESULT)
    for _ in range(2):
        await service.run_janitor()

    assert (first.state, same.id, second.id == first.id) == (ErasureState.WAITING, first.id, False)
    assert find_private_text(service) == []
