"""Erasure of a call or a client session: nothing of them is left, and every promise about them still holds."""

import logging
from pathlib import Path

import httpx
import pytest

from ringback.domain.call_outcome import completion_from_result
from ringback.domain.principal import Scope
from tests.support.erasures import BODY, PRIVATE, RESULT, SESSION, find_private_text, run_call, start
from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest, running_service


async def test_an_erased_call_leaves_a_tombstone_and_empty_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    call_id = await run_call(service, alice, f"{PRIVATE}-key", callback={"url": CALLBACK_URL + "/own"})
    before = (await alice.get("/v1/events")).json()

    erased = await alice.delete(f"/v1/calls/{call_id}")

    answer = erased.json()
    assert erased.status_code == 200
    assert (answer["state"], answer["calls"], answer["deliveries"], answer["events"]) == ("finished", 1, 2, 1)
    assert (await alice.get(erased.headers["location"])).json() == answer
    assert find_private_text(service) == ["tombstones"]  # the idempotency key
    assert await service.read_deliveries("alice") == []
    (event,) = (await alice.get("/v1/events")).json()["events"]
    assert event["eventId"] == before["events"][0]["eventId"]
    assert event["cursor"] == before["events"][0]["cursor"]
    data = event["data"]
    assert (data["erased"], data["status"], data["outcome"], data["call_id"]) == (True, "completed", "result", call_id)
    assert (data["client_session_id"], data["correlation_id"], data["result_sha256"]) == (None, None, None)
    lines = [record for record in caplog.records if record.message.startswith("erasure.")]
    assert [(record.message, record.__dict__["principal"]) for record in lines] == [
        ("erasure.requested", "alice"),
        ("erasure.finished", "alice"),
    ]
    assert PRIVATE not in caplog.text


async def test_an_erased_call_and_its_idempotency_key_get_410(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    started = (await alice.post("/v1/calls", json=BODY, headers={"Idempotency-Key": "once"})).json()
    call_id = started["call"]["id"]
    await service.finish_call(call_id, RESULT)
    await alice.delete(f"/v1/calls/{call_id}")

    gone = [
        await alice.get(f"/v1/calls/{call_id}"),
        await alice.get(f"/v1/calls/{call_id}/result"),
        await alice.post("/v1/resume", json={"resume_token": started["resume_token"]}),
        await alice.post("/v1/calls", json=BODY, headers={"Idempotency-Key": "once"}),
        await alice.post("/v1/calls", json=CALL_BODY, headers={"Idempotency-Key": "once"}),
        await alice.delete(f"/v1/calls/{call_id}"),
    ]

    assert [answer.status_code for answer in gone] == [410] * 6
    assert all("erased" in answer.json()["detail"] for answer in gone)
    assert (await bob.delete(f"/v1/calls/{call_id}")).status_code == 404
    assert service.count_rows()["calls"] == 0


async def test_a_call_that_has_not_ended_is_refused_or_cancelled_first(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    queued, running = await start(alice), await start(alice)
    await service.mark_dispatched(running)

    refused = await alice.delete(f"/v1/calls/{running}")
    at_once = await alice.delete(f"/v1/calls/{queued}", params={"cancel": "true"})
    later = await alice.delete(f"/v1/calls/{running}", params={"cancel": "true"})
    repeated = await alice.delete(f"/v1/calls/{running}", params={"cancel": "true"})

    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/call-running")
    assert "?cancel=true" in refused.json()["detail"]
    assert at_once.json()["state"] in {"waiting", "finished"}
    assert (later.status_code, later.json()["state"], repeated.json()["id"]) == (202, "waiting", later.json()["id"])
    assert (await service.read_call(running)).cancel_requested

    await service.finish_call(running, RESULT)
    for _ in range(2):
        await service.run_janitor()
    assert (await alice.get(later.headers["location"])).json()["state"] == "finished"
    assert (await alice.get(at_once.headers["location"])).json()["state"] == "finished"
    assert find_private_text(service) == []


async def test_an_expired_call_is_erased_too(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    call_id = await run_call(service, alice)
    service.clock.advance(RETENTION_SECONDS + 60)
    await service.run_janitor()
    assert (await alice.get(f"/v1/calls/{call_id}")).status_code == 410

    erased = await alice.delete(f"/v1/calls/{call_id}")

    assert (erased.status_code, erased.json()["events"], erased.json()["deliveries"]) == (200, 1, 1)
    assert find_private_text(service) == []


async def test_an_erased_session_leaves_other_sessions_and_cursors_as_they_are(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    own = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "client_session_id": BODY["client_session_id"]})
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL + "/all"})
    await run_call(service, alice)
    other = await run_call(
        service, alice, client_session_id="other", correlation_id="other", arguments={"repo_path": "x"}
    )
    await run_call(service, alice)
    foreign = await run_call(service, bob)
    cursor = (await alice.get("/v1/events", params={"limit": 1})).json()["cursor"]

    erased = await alice.delete(SESSION)

    answer = erased.json()
    assert (erased.status_code, answer["target"]) == (200, BODY["client_session_id"])
    assert (answer["calls"], answer["events"], answer["webhooks"]) == (2, 2, 1)
    assert [call["id"] for call in (await alice.get("/v1/calls")).json()["calls"]] == [other]
    assert (await alice.get(own.headers["location"])).status_code == 404
    rest = (await alice.get("/v1/events", params={"cursor": cursor})).json()
    assert [event["data"].get("erased") for event in rest["events"]] == [None, True]
    assert not rest["truncated"]
    assert [delivery.call_id for delivery in await service.read_deliveries("alice")] == [other]
    assert (await bob.get(f"/v1/calls/{foreign}/result")).status_code == 200


async def test_erasing_a_session_with_webhooks_needs_the_scope_webhooks(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "client_session_id": BODY["client_session_id"]})
    call_id = await run_call(service, alice)
    only_calls = await service.create_client("alice", scopes=frozenset({Scope.CALLS}))

    refused = await only_calls.delete(SESSION)

    assert (refused.status_code, service.count_rows()["erasures"]) == (403, 0)
    assert (await alice.get(f"/v1/calls/{call_id}")).status_code == 200


async def test_what_has_expired_of_a_session_is_erased_from_the_log(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    await run_call(service, alice)
    service.clock.advance(RETENTION_SECONDS + 60)
    await service.run_janitor()

    erased = (await alice.delete(SESSION)).json()

    assert (erased["state"], erased["calls"], erased["events"], erased["deliveries"]) == ("finished", 0, 1, 1)
    assert find_private_text(service, but_for=frozenset({"erasures"})) == []


async def test_a_large_session_is_erased_in_the_background(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.services.erasures.INLINE_BATCHES_MAX", 1)
    monkeypatch.setattr("ringback.services.erasure_batches.ERASE_BATCH_SIZE", 2)
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    for _ in range(4):
        await run_call(service, alice)

    accepted = await alice.delete(SESSION)
    repeated = await alice.delete(SESSION)

    assert (accepted.status_code, accepted.json()["state"]) == (202, "erasing")
    assert repeated.json()["id"] == accepted.json()["id"]
    for _ in range(12):
        await service.run_janitor()
    finished = (await alice.get(accepted.headers["location"])).json()
    assert (finished["state"], finished["calls"], finished["deliveries"], finished["events"]) == ("finished", 4, 4, 4)


async def test_a_webhook_that_catches_up_receives_the_stub_of_an_erased_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    cursor = (await alice.get("/v1/events")).json()["cursor"]
    call_id = await run_call(service, alice)
    await alice.delete(f"/v1/calls/{call_id}")

    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "cursor": cursor})

    (delivery,) = await service.read_deliveries("alice")
    assert b'"erased":true' in delivery.body
    assert PRIVATE.encode() not in delivery.body
    assert b"resume_token" not in delivery.body


async def test_a_finished_erasure_is_forgotten_with_the_tombstones(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await run_call(service, alice)
    erased = await alice.delete(SESSION)

    service.clock.advance(31 * 86400)
    await service.run_janitor()

    assert (await alice.get(erased.headers["location"])).status_code == 404
    assert find_private_text(service) == []


def read_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.sqlite_only("PostgreSQL overwrites deleted rows when VACUUM has freed them")
async def test_the_file_holds_no_byte_of_an_erased_call(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        large = completion_from_result(b'{"content":"%s"}' % (PRIVATE.encode() * 10_000), is_error=False)
        call_id = await start(alice)
        await service.finish_call(call_id, large)
        await bob.post("/v1/calls", json=CALL_BODY)
        assert (await alice.delete(f"/v1/calls/{call_id}")).status_code == 200

    files = read_files(tmp_path)
    assert str(CALL_BODY["correlation_id"]).encode() in files
    assert PRIVATE.encode() not in files
