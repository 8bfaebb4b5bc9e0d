"""Erasure of a principal: nothing of it is left, and only an operator erases for others."""

from collections import Counter
from unittest.mock import create_autospec

import httpx
import pytest

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.errors import Unauthenticated
from ringback.domain.ids import IdGenerator
from ringback.domain.insight_rows import ALL_UPSTREAMS, HourKey
from ringback.domain.insights import STARTED, hour_of
from ringback.domain.principal import ALL_PRINCIPALS, ALL_SCOPES, Principal, Scope
from ringback.notifier.permits import ReceiverKey
from ringback.services import erasure_batches, erasures
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.mcp_sessions import McpSessions, SessionUse
from tests.support.databases import query_rows
from tests.support.erasures import PRIVATE, SESSION, find_private_text, run_call, start
from tests.support.examples import BOB
from tests.support.rejections import assert_rejected
from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest


@pytest.fixture
async def admin(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


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


async def test_an_erased_principal_is_named_in_no_turns_at_upstreams_no_breakers_and_no_counts(
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
    for principal in (name, BOB):
        key = ReceiverKey(principal, "https://agent.example").breaker_key
        await service.store.write(lambda tx, key=key: tx.origin_breakers.save_breaker(key, CircuitBreaker(failures=1)))

    erased = await admin.delete(f"/v1/principals/{name}")

    assert erased.json()["state"] == "finished"
    kept = frozenset({"audit_entries", "audit_counts", "erasures", "log_heads", "tombstones"})
    assert find_private_text(service, text=name, but_for=kept) == []
    assert {"turns", "origins"} <= set(find_private_text(service, text=BOB))


async def test_an_erasure_keeps_breakers_of_a_principal_whose_name_goes_on_after_a_space(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    keys = [
        ReceiverKey(Principal(name), "https://agent.example").breaker_key for name in ("alice", "alice b", "alice ")
    ]
    for key in keys:
        await service.store.write(lambda tx, key=key: tx.origin_breakers.save_breaker(key, CircuitBreaker(failures=1)))

    await admin.delete("/v1/principals/alice")

    assert set(await service.store.read(lambda tx: tx.origin_breakers.get_breakers(keys))) == set(keys[1:])


async def test_an_erasure_deletes_breakers_of_many_origins_in_batches(service: ServiceUnderTest) -> None:
    alice = Principal("alice")
    for number in range(5):
        key = ReceiverKey(alice, f"https://{number}.example").breaker_key
        await service.store.write(lambda tx, key=key: tx.origin_breakers.save_breaker(key, CircuitBreaker(failures=1)))

    batches = [await service.store.write(lambda tx: tx.erased_rows.delete_remainder(alice, limit=2)) for _ in range(4)]

    assert batches == [2, 2, 1, 0]


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


async def test_a_call_that_its_server_reports_does_not_hold_up_the_erasure_of_its_principal(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    """The server's key is gone, so the erasure waited for the call's deadline, a week later."""
    alice = await service.create_client("alice", scopes=frozenset({Scope.ADOPT, Scope.CALLS}))
    reports = [{"key": f"{PRIVATE}-{number}", "upstream": "farm", "tool": "build"} for number in range(2)]
    assert (await alice.post("/v1/calls/report", json=reports[0])).status_code == 202
    await alice.post("/v1/calls/cancel", json={"upstream": "farm"})
    assert (await alice.post("/v1/calls/report", json=reports[1])).status_code == 202

    erased = await admin.delete("/v1/principals/alice", params={"cancel": "true"})

    assert (erased.status_code, erased.json()["state"], erased.json()["calls"]) == (200, "finished", 2)


async def test_each_running_call_of_an_erased_principal_is_cancelled_although_others_go_on(
    service: ServiceUnderTest, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure_batches, "CANCEL_CALLS_MAX", 2)
    alice = await service.create_client("alice")
    running = [await start(alice) for _ in range(7)]
    for call_id in running:
        await service.mark_dispatched(call_id)

    erased = await admin.delete("/v1/principals/alice", params={"cancel": "true"})

    assert (erased.status_code, erased.json()["state"]) == (202, "waiting")
    assert [(await service.read_call(call_id)).cancel_requested for call_id in running] == [True] * 7


async def test_only_an_admin_erases_a_principal_and_reads_its_erasure(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    await start(alice)
    limited = await service.create_client("root", scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"git"}))

    refused = [await client.delete("/v1/principals/alice") for client in (alice, bob, limited, admin)]
    waiting = await admin.delete("/v1/principals/alice", params={"cancel": "true"})

    assert [answer.status_code for answer in refused] == [403, 403, 403, 409]
    assert refused[2].json()["detail"].endswith("Use a key that is limited to no upstream.")
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


async def test_a_session_that_was_authenticated_before_the_erasure_of_its_principal_is_not_stored(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    sessions = McpSessions(service.store, ids=IdGenerator(service.clock))
    key, _ = await service.services.api_keys.create_key("alice", name="", scopes=ALL_SCOPES, upstreams=None)
    assert (await admin.delete("/v1/principals/alice")).json()["state"] == "finished"

    with pytest.raises(Unauthenticated, match="Nothing was stored"):
        await sessions.open_session(
            key.to_caller(), sessions.new_session_id(), "/mcp", {"clientInfo": PRIVATE}, create_autospec(SessionUse)
        )

    assert query_rows(service.folder, "SELECT id FROM mcp_sessions") == []
