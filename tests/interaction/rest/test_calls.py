"""Calls over REST: start, read, list, cancel; results."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from ringback.domain.call import Progress, RerunPolicy
from ringback.domain.call_outcome import (
    CANCELLED_COMPLETION,
    CallCompletion,
    CallOutcome,
    completion_from_result,
    completion_from_upstream_error,
    failed_completion,
)
from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.domain.upstreams import ToolConfig
from ringback.services.calls.call_starts import StartCallRequest
from tests.support.fixed_upstreams import FakeUpstreamConnection
from tests.support.service import CALL_BODY, CALLBACK_URL, RESULT, RETENTION_SECONDS, ServiceUnderTest
from tests.support.stores import FOREVER


async def start(client: httpx.AsyncClient, **over: object) -> str:
    answer = await client.post("/v1/calls", json=CALL_BODY | over)
    assert answer.status_code == 202, answer.text
    return answer.json()["call"]["id"]


@pytest.mark.usefixtures("shared_service")
async def test_a_start_returns_at_once_with_the_location_of_the_call(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/calls", json=CALL_BODY)

    assert answer.status_code == 202
    started = answer.json()
    assert started["call"]["status"] == "working"
    assert started["call_id"] == started["call"]["id"]
    assert answer.headers["location"] == f"/v1/calls/{started['call']['id']}"
    assert (await alice.get(answer.headers["location"])).json() == started["call"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R19")
async def test_a_call_shows_the_ids_that_its_client_chose(alice: httpx.AsyncClient) -> None:
    call = (await alice.get(f"/v1/calls/{await start(alice)}")).json()

    assert (call["client_session_id"], call["correlation_id"]) == ("session-1", "report-1")


async def test_a_call_without_a_matching_webhook_comes_with_a_hint(alice: httpx.AsyncClient) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()

    assert started["webhooks"] == []
    assert "POST /v1/webhooks" in started["hint"]


async def test_a_call_lists_the_webhooks_that_get_its_callback(alice: httpx.AsyncClient) -> None:
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()
    await alice.post("/v1/webhooks", json={"url": CALLBACK_URL, "upstream": "time"})

    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()

    (shown,) = started["webhooks"]
    assert shown == {"id": webhook["id"], "state": "active", "paused_at": None, "url": CALLBACK_URL, "outcomes": None}
    assert "hint" not in started


async def test_the_generated_secret_of_a_callback_is_shown_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    callback = {"url": CALLBACK_URL, "correlation_id": "inbox-3"}
    started = (await alice.post("/v1/calls", json=CALL_BODY | {"callback": callback})).json()

    assert started["callback_secret"].startswith("whsec_")
    (listener,) = started["webhooks"]
    webhook = (await alice.get(f"/v1/webhooks/{listener['id']}")).json()
    assert (webhook["origin"], webhook["call_id"]) == ("call", started["call"]["id"])
    assert "whsec_" not in str(webhook)

    await service.finish_call(started["call"]["id"])
    assert len(await service.read_deliveries("alice")) == 1


@pytest.mark.usefixtures("shared_service")
async def test_a_client_supplied_secret_is_not_returned(alice: httpx.AsyncClient) -> None:
    callback = {"url": CALLBACK_URL, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    started = await alice.post("/v1/calls", json=CALL_BODY | {"callback": callback})

    assert started.status_code == 202
    assert "whsec_" not in started.text


@pytest.mark.usefixtures("shared_service")
async def test_a_result_has_the_same_bytes_as_the_stored_one(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id)

    answer = await alice.get(f"/v1/calls/{call_id}/result")

    assert answer.content == RESULT
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["etag"] == f'"{hashlib.sha256(RESULT).hexdigest()}"'


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("tags", ["{etag}", "W/{etag}", '"other", {etag}', "*"])
async def test_a_result_that_the_client_has_is_not_sent_again(
    service: ServiceUnderTest, alice: httpx.AsyncClient, tags: str
) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id)
    etag = (await alice.get(f"/v1/calls/{call_id}/result")).headers["etag"]

    again = await alice.get(f"/v1/calls/{call_id}/result", headers={"If-None-Match": tags.format(etag=etag)})
    other = await alice.get(f"/v1/calls/{call_id}/result", headers={"If-None-Match": '"other"'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert (other.status_code, other.content) == (200, RESULT)


@pytest.mark.usefixtures("shared_service")
async def test_a_missing_result_is_refused_with_how_to_wait_for_it(alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)

    answer = await alice.get(f"/v1/calls/{call_id}/result")

    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/result-not-ready"
    assert f"GET /v1/calls/{call_id}?wait_seconds=45" in answer.json()["detail"]


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R33")
async def test_a_call_that_failed_says_why_and_has_no_result(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id, failed_completion(CallOutcome.UNKNOWN, "The runner was lost."))

    call = (await alice.get(f"/v1/calls/{call_id}")).json()
    assert (call["status"], call["outcome"]) == ("failed", "unknown")
    assert call["error"] == {
        "code": "unknown",
        "message": "The runner was lost.",
        "jsonrpc": {"code": -32603, "message": "The runner was lost.", "data": {"outcome": "unknown"}},
    }
    assert (await alice.get(f"/v1/calls/{call_id}/result")).status_code == 409


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R33")
async def test_the_error_of_an_upstream_is_shown_unchanged(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)
    error = {"code": -32001, "message": "no such repository", "data": {"path": "/srv/repo"}}
    await service.finish_call(call_id, completion_from_upstream_error(error))

    call = (await alice.get(f"/v1/calls/{call_id}")).json()
    assert call["outcome"] == "upstream_error"
    assert call["error"] == {"code": "upstream_error", "message": "no such repository", "jsonrpc": error}


@pytest.mark.usefixtures("shared_service")
@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        (completion_from_result(RESULT, is_error=False), None, None),
        (completion_from_result(RESULT, is_error=True), "tool_error", "The tool returned an error."),
        (CANCELLED_COMPLETION, "cancelled", "The call was cancelled."),
    ],
)
async def test_a_call_that_did_not_fail_has_an_error_unless_it_has_a_plain_result(
    service: ServiceUnderTest, alice: httpx.AsyncClient, ending: CallCompletion, code: str | None, message: str | None
) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id, ending)

    error = (await alice.get(f"/v1/calls/{call_id}")).json()["error"]
    assert (error and error["code"], error and error["jsonrpc"]) == (code, None)
    assert message is None or error["message"].startswith(message)


@pytest.mark.requirement("R33")
async def test_an_expired_call_gets_410_gone(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id)
    service.clock.advance(RETENTION_SECONDS + 1)
    await service.run_janitor()

    for path in (f"/v1/calls/{call_id}", f"/v1/calls/{call_id}/result"):
        answer = await alice.get(path)
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/call-expired")


@pytest.mark.parametrize("surface", ["result", "resume"])
async def test_a_call_that_expires_between_the_reads_of_a_large_result_gets_410(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, surface: str
) -> None:
    """A 409 said that the completed call has no result, and a resume showed it without one."""
    monkeypatch.setattr("ringback.services.calls.call_reads.LARGE_RESPONSE_BYTES", len(RESULT))
    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()
    await service.finish_call(started["call_id"])
    scan = service.store.scan

    async def expire_before_the_read(principal: Any, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        monkeypatch.setattr(service.store, "scan", scan)
        service.clock.advance(RETENTION_SECONDS + 1)
        await service.run_janitor()
        return await scan(principal, work)

    monkeypatch.setattr(service.store, "scan", expire_before_the_read)
    answer = (
        await alice.get(f"/v1/calls/{started['call_id']}/result")
        if surface == "result"
        else await alice.post("/v1/resume", json={"resume_token": started["resume_token"]})
    )

    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/call-expired")


@pytest.mark.usefixtures("shared_service")
async def test_the_last_progress_is_part_of_the_call(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)
    await service.mark_dispatched(call_id)
    await service.record_progress(call_id, Progress(progress=3, total=10, message="reading"))

    call = (await alice.get(f"/v1/calls/{call_id}")).json()
    assert call["progress"] == {"progress": 3.0, "total": 10.0, "message": "reading"}


@pytest.mark.usefixtures("shared_service")
async def test_cancelling_a_queued_call_ends_it_and_may_be_repeated(alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)

    first = await alice.post(f"/v1/calls/{call_id}/cancel")
    second = await alice.post(f"/v1/calls/{call_id}/cancel")

    assert (first.status_code, first.json()["status"], first.json()["outcome"]) == (200, "cancelled", "cancelled")
    assert second.json() == first.json()


async def test_a_start_that_its_client_has_cancelled_already_ends_in_its_own_transaction(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """Its cancellation followed in a transaction of its own, before which the tool could run."""
    request = StartCallRequest(upstream="git", tool="git_status", wait_seconds=4.0, is_cancelled=True)

    started = await service.services.calls.start_call(
        Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES), request
    )

    listed = (await alice.get("/v1/calls")).json()["calls"]
    assert (started.is_new, started.call.outcome, started.call.runs) == (True, CallOutcome.CANCELLED, 0)
    assert [(each["id"], each["status"]) for each in listed] == [(started.call.id, "cancelled")]


@pytest.mark.usefixtures("shared_service")
async def test_cancelling_a_running_call_requests_its_cancellation(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start(alice)
    await service.mark_dispatched(call_id)

    cancelling = (await alice.post(f"/v1/calls/{call_id}/cancel")).json()

    assert (cancelling["status"], cancelling["cancel_requested"]) == ("working", True)


@pytest.mark.usefixtures("shared_service")
async def test_cancelling_an_ended_call_changes_nothing(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start(alice)
    await service.finish_call(call_id)

    late = (await alice.post(f"/v1/calls/{call_id}/cancel")).json()

    assert (late["status"], late["cancel_requested"]) == ("completed", False)


@pytest.mark.requirement("R13")
async def test_calls_are_found_by_the_ids_that_their_client_chose(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    first = await start(alice, client_session_id="session-1", correlation_id="a")
    second = await start(alice, client_session_id="session-1", correlation_id="b")
    third = await start(alice, client_session_id="session-2", correlation_id="b")
    await service.finish_call(second)

    async def found(**question: str) -> list[str]:
        answer = await alice.get("/v1/calls", params=question)
        return sorted(call["id"] for call in answer.json()["calls"])

    assert await found(client_session_id="session-1") == sorted([first, second])
    assert await found(correlation_id="b") == sorted([second, third])
    assert await found(client_session_id="session-1", correlation_id="b") == [second]
    assert await found(status="completed") == [second]
    assert await found(upstream="git", tool="git_log") == sorted([first, second, third])
    assert await found(upstream="time") == []


async def test_a_list_since_the_beginning_of_the_calendar_has_all_calls_and_one_until_then_has_none(
    alice: httpx.AsyncClient,
) -> None:
    """Programs send 0001-01-01, the zero time of several languages, where they mean no limit."""
    call_id = await start(alice)

    async def list_ids(**times: str) -> list[str]:
        return [each["id"] for each in (await alice.get("/v1/calls", params=times)).json()["calls"]]

    for instant in ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z"):
        assert await list_ids(since=instant) == [call_id]
        assert await list_ids(until=instant) == []
    assert await list_ids(since="9999-12-31T23:59:59Z") == []
    assert await list_ids(until="9999-12-31T23:59:59Z") == [call_id]


async def test_a_list_is_paged_without_gaps_or_repeats(alice: httpx.AsyncClient) -> None:
    started = {await start(alice) for _ in range(5)}
    pages: list[list[str]] = []
    question: dict[str, str] = {"limit": "2"}
    while True:
        answer = (await alice.get("/v1/calls", params=question)).json()
        pages.append([call["id"] for call in answer["calls"]])
        if answer["next_cursor"] is None:
            break
        question["cursor"] = answer["next_cursor"]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert {call_id for page in pages for call_id in page} == started


async def test_a_list_whose_filter_matches_nothing_ends_after_empty_pages(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", 3)
    for _ in range(5):
        await start(alice)
    question: dict[str, str] = {"limit": "2", "tool": "none"}

    first = (await alice.get("/v1/calls", params=question)).json()
    second = (await alice.get("/v1/calls", params=question | {"cursor": first["next_cursor"]})).json()

    assert (first["calls"], second["calls"], second["next_cursor"]) == ([], [], None)


@pytest.mark.parametrize(
    ("policy", "trusted", "allowed"),
    [("never", True, False), ("if_safe", False, False), ("if_safe", True, True), ("always", False, True)],
)
async def test_the_start_of_a_call_decides_whether_it_may_run_twice(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    *,
    trusted: bool,
    allowed: bool,
) -> None:
    monkeypatch.setattr(FakeUpstreamConnection, "trusted", trusted)
    read = await start(alice, tool="git_status", rerun_policy=policy)
    write = await start(alice, rerun_policy=policy)

    calls = [await service.read_call(call_id) for call_id in (read, write)]

    assert [call.rerun_allowed for call in calls] == [allowed, allowed and policy == "always"]
    assert (await alice.get(f"/v1/calls/{read}")).json()["rerun_policy"] == policy


async def test_a_call_without_a_rerun_policy_has_the_configured_one_of_its_tool(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_tool_config(_connection: FakeUpstreamConnection, _tool: str) -> ToolConfig:
        return ToolConfig(rerun_policy=RerunPolicy.ALWAYS)

    monkeypatch.setattr(FakeUpstreamConnection, "get_tool_config", get_tool_config)
    unset, never = await start(alice), await start(alice, rerun_policy="never")
    caller = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)
    request = StartCallRequest(upstream="git", tool="git_status")  # as an MCP client's
    over_mcp = (await service.services.calls.start_call(caller, request)).call

    calls = [await service.read_call(call_id) for call_id in (unset, never, over_mcp.id)]

    assert [(call.rerun_policy, call.rerun_allowed) for call in calls] == [
        ("always", True),
        ("never", False),
        ("always", True),
    ]


async def test_during_a_shutdown_new_calls_are_refused_and_existing_ones_can_be_read(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start(alice)
    service.services.lifecycle.begin_shutdown()

    refused_call = await alice.post("/v1/calls", json=CALL_BODY)

    assert (refused_call.status_code, refused_call.json()["type"]) == (503, "/problems/shutting-down")
    assert int(refused_call.headers["retry-after"]) > 0
    assert (await alice.get(f"/v1/calls/{call_id}")).status_code == 200


async def test_a_full_disk_gives_an_error_response_and_starts_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.store.refusals = FOREVER

    answer = await alice.post("/v1/calls", json=CALL_BODY)

    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert service.count_rows()["calls"] == 0


@pytest.mark.usefixtures("shared_service")
async def test_a_key_with_the_start_scope_only_gets_the_result_of_its_own_wait(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    starter = await service.create_client("alice", scopes=frozenset({Scope.CALLS}))
    headers = {"Idempotency-Key": "once"}
    call_id = (await starter.post("/v1/calls", json=CALL_BODY, headers=headers)).json()["call"]["id"]
    await service.finish_call(call_id)

    answer = await starter.post("/v1/calls", json=CALL_BODY | {"wait_seconds": 1}, headers=headers)

    assert answer.status_code == 200
    assert answer.json()["result"] == {"content": [{"type": "text", "text": "done"}], "isError": False}
