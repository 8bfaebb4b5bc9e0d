"""Erasure of a call, a client session, a principal: nothing of them is left, and every promise about them still holds."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.call_outcome import completion_from_result
from ringback.domain.errors import Unauthenticated
from ringback.domain.insight_rows import ALL_UPSTREAMS, HourKey
from ringback.domain.insights import STARTED, hour_of
from ringback.domain.principal import ALL_PRINCIPALS, ALL_SCOPES, Principal, Scope
from ringback.services import erasures
from ringback.services.calls.call_starts import StartCallRequest
from tests.support.databases import count_rows, query_rows
from tests.support.examples import BOB
from tests.support.rejections import assert_rejected
from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest, running_service

PRIVATE = "private-7f3a"
"""What the client and the upstream say, in every text that reaches the service."""
BODY: dict[str, Any] = CALL_BODY | {
    "arguments": {"repo_path": PRIVATE},
    "client_session_id": f"{PRIVATE}/session",
    "correlation_id": f"{PRIVATE}-correlation",
}
SESSION = "/v1/sessions/private-7f3a%2Fsession"
RESULT = completion_from_result(b'{"content":[{"type":"text","text":"private-7f3a"}],"isError":false}', is_error=False)


@pytest.fixture
async def admin(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def start(client: httpx.AsyncClient, key: str | None = None, **over: Any) -> str:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await client.post("/v1/calls", json=BODY | over, headers=headers)
    assert answer.status_code == 202
    return answer.json()["call"]["id"]


async def run_call(service: ServiceUnderTest, client: httpx.AsyncClient, key: str | None = None, **over: Any) -> str:
    call_id = await start(client, key, **over)
    await service.finish_call(call_id, RESULT)
    return call_id


def find_private_text(
    service: ServiceUnderTest, *, but_for: frozenset[str] = frozenset(), text: str = PRIVATE
) -> list[str]:
    """The tables that hold the private text."""
    tables = count_rows(service.folder).keys() - but_for
    return sorted(
        table
        for table in tables
        if text in repr([tuple(row) for row in query_rows(service.folder, f"SELECT * FROM {table}")])  # noqa: S608
    )


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


async def test_an_erased_principal_leaves_nothing_but_tombstones_and_the_end_of_its_log(
    service: ServiceUnderTest, admin: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    alice = await service.create_client("alice")
    await alice.put(f"/v1/webhooks/by-name/{PRIVATE}", json={"url": CALLBACK_URL})
    for _ in range(3):
        await run_call(service, alice, callback={"url": CALLBACK_URL + "/own"})
    foreign = await run_call(service, bob)

    erased = await admin.delete("/v1/principals/alice")

    answer = erased.json()
    assert (erased.status_code, answer["calls"], answer["events"], answer["deliveries"]) == (200, 3, 3, 6)
    assert (await alice.get("/v1/calls")).status_code == 401  # its key is gone
    again = await service.create_client("alice")
    assert (await again.get("/v1/calls")).json()["calls"] == []
    assert (await again.get("/v1/webhooks")).json()["webhooks"] == []
    assert (await again.get("/v1/events")).json()["events"] == []
    assert service.count_rows()["tombstones"] == 3
    assert (await bob.get(f"/v1/calls/{foreign}/result")).status_code == 200
    next_call = await run_call(service, again)
    (event,) = (await again.get("/v1/events")).json()["events"]
    assert event["data"]["call_id"] == next_call


async def test_an_erased_principal_is_named_in_no_turns_at_upstreams_and_in_no_counts(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    """What is left keeps promises: idempotency keys, places in the log. A name may be an address of a person."""
    name = Principal("alice@clinic.example")
    alice = await service.create_client(name)
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    await run_call(service, alice)
    await service.store.write(lambda tx: tx.call_queue.take_turn("git", name))
    await service.store.write(lambda tx: tx.call_queue.take_turn("github", name))
    await service.store.write(lambda tx: tx.call_queue.take_turn("github", BOB))

    erased = await admin.delete(f"/v1/principals/{name}")

    assert erased.json()["state"] == "finished"
    kept = frozenset({"audit_entries", "audit_counts", "erasures", "log_heads", "tombstones"})
    assert find_private_text(service, text=name, but_for=kept) == []
    assert "turns" in find_private_text(service, text=BOB)


async def test_an_erased_principal_leaves_no_request_hash_of_calls_that_had_expired(
    service: ServiceUnderTest, admin: httpx.AsyncClient, bob: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash says whether a call had certain arguments."""
    monkeypatch.setattr("ringback.storage.rows.calls.ROWS_SCANNED_MAX", 2)
    alice = await service.create_client("alice")
    for number in range(5):
        await run_call(service, alice, f"key-{number}")
        await run_call(service, bob)
    service.clock.advance(RETENTION_SECONDS + 60)
    await service.run_janitor()
    again = await service.create_client("alice")

    erased = await admin.delete("/v1/principals/alice")

    assert (erased.status_code, erased.json()["state"]) == (200, "finished")
    rows = query_rows(service.folder, "SELECT principal, request_hash = '' AS is_empty, erased FROM tombstones")
    assert sorted(tuple(row) for row in rows) == [("alice", 1, 1)] * 5 + [("bob", 0, 0)] * 5
    assert (await again.get("/v1/calls")).status_code == 401


async def test_the_keys_of_an_erased_principal_end_with_the_request_and_not_with_a_later_batch(
    service: ServiceUnderTest, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they start calls that are newer than the request and stay."""
    monkeypatch.setattr(erasures, "INLINE_BATCHES_MAX", 0)
    alice = await service.create_client("alice")
    await run_call(service, alice)

    erased = await admin.delete("/v1/principals/alice")

    assert (erased.status_code, erased.json()["state"]) == (202, "erasing")
    assert (await alice.post("/v1/calls", json=CALL_BODY)).status_code == 401


async def test_only_an_admin_erases_a_principal_and_reads_its_erasure(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    await start(alice)
    limited = await service.create_client("root", scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"git"}))

    refused = [await client.delete("/v1/principals/alice") for client in (alice, bob, limited, admin)]
    waiting = await admin.delete("/v1/principals/alice", params={"cancel": "true"})

    assert [answer.status_code for answer in refused] == [403, 403, 403, 409]
    assert (await bob.get(waiting.headers["location"])).status_code == 404
    for _ in range(2):
        await service.run_janitor()
    assert (await admin.get(waiting.headers["location"])).json()["state"] == "finished"


async def test_the_name_of_all_principals_erases_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    """The hourly counts of the whole service have this name."""
    await run_call(service, alice)
    counts = {HourKey(ALL_PRINCIPALS, ALL_UPSTREAMS, hour_of(service.clock.now())): Counter({STARTED: 7})}
    await service.store.write(lambda tx: tx.insights.add_counts(counts))

    problem = await assert_rejected(service, admin, "DELETE", "/v1/principals/*")

    assert (problem["status"], problem["detail"]) == (
        422,
        "Name one principal instead of '*'. Erase each one by itself.",
    )


async def test_an_operator_erases_for_the_owner(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    first, second = await run_call(service, alice), await run_call(service, alice)

    refused = await bob.delete(f"/v1/calls/{first}", params={"principal": "alice"})
    one = await admin.delete(f"/v1/calls/{first}", params={"principal": "*"})
    session = await admin.delete(SESSION, params={"principal": "alice"})

    assert [answer.status_code for answer in (refused, one, session)] == [403, 200, 200]
    assert session.json()["calls"] == 1
    assert (await alice.get(f"/v1/calls/{second}")).status_code == 410


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


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_start_that_was_authenticated_before_the_erasure_of_its_principal_stores_nothing(
    service: ServiceUnderTest, admin: httpx.AsyncClient, *, is_batch: bool
) -> None:
    calls = service.services.calls
    request = StartCallRequest(upstream="git", tool="git_log", arguments={"repo_path": "."})
    key, _ = await service.services.api_keys.create_key("alice", name="", scopes=ALL_SCOPES, upstreams=None)
    assert (await admin.delete("/v1/principals/alice")).json()["state"] == "finished"

    with pytest.raises(Unauthenticated, match="Nothing was stored"):
        await (
            calls.start_batch(key.to_caller(), [request]) if is_batch else calls.start_call(key.to_caller(), request)
        )

    assert query_rows(service.folder, "SELECT id FROM calls") == []
