"""Reports over REST: calls that run elsewhere get events and callbacks."""

from typing import Any, Final

import httpx
import orjson
import pytest

from ringback.domain.clock import seconds
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import ALL_SCOPES, DEFAULT_SCOPES, Scope
from ringback.services.calls.reports import REPORTED_RESULT_BYTES_MAX, parse_result_completion
from tests.support.service import CALL_BODY, CALLBACK_URL, RETENTION_SECONDS, ServiceUnderTest

pytestmark = pytest.mark.requirement("R29")

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
REPORT: Final[dict[str, Any]] = {
    "key": "build-1",
    "upstream": "build-farm",
    "tool": "build_report",
    "arguments": {"year": 2026},
    "client_session_id": "session-1",
    "correlation_id": "report-1",
}
LATER: Final[dict[str, Any]] = {name: REPORT[name] for name in ("key", "upstream", "tool")}
RESULT: Final[dict[str, Any]] = {"content": [{"type": "text", "text": "all is well"}], "isError": False}


@pytest.fixture
async def reporter(service: ServiceUnderTest) -> httpx.AsyncClient:
    """A client of Alice's server, which runs its own tools."""
    return await service.create_client("alice", scopes=DEFAULT_SCOPES | {Scope.ADOPT})


async def report(reporter: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = await reporter.post("/v1/calls/report", json=body)
    assert answer.status_code in {200, 202}, answer.text
    assert answer.headers["location"] == f"/v1/calls/{answer.json()['call']['id']}"
    return dict(answer.json())


async def assert_rejected(reporter: httpx.AsyncClient, body: dict[str, Any], *, status: int) -> dict[str, Any]:
    answer = await reporter.post("/v1/calls/report", json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


# -- a life in reports -----------------------------------------------------------------------------------------------------


async def test_a_reported_call_is_a_call_like_any_other(
    service: ServiceUnderTest, reporter: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    begun = await report(reporter, REPORT | {"callback": {"url": CALLBACK_URL, "secret": SECRET}})
    assert (begun["call"]["status"], begun["call"]["runs"]) == ("working", 1)
    assert [webhook["url"] for webhook in begun["webhooks"]] == [CALLBACK_URL]

    reported = await report(reporter, LATER | {"progress": {"progress": 1, "total": 2, "message": "half"}})
    assert reported["call"]["progress"] == {"progress": 1.0, "total": 2.0, "message": "half"}

    ended = await report(reporter, LATER | {"result": RESULT})
    call_id = begun["call"]["id"]
    assert (ended["call"]["id"], ended["call"]["status"], ended["call"]["outcome"]) == (call_id, "completed", "result")
    assert (await alice.get(f"/v1/calls/{call_id}/result")).json() == RESULT

    (delivery,) = await service.read_deliveries("alice")
    data = orjson.loads(delivery.body)["data"]
    assert (data["call_id"], data["upstream"], data["tool"]) == (call_id, "build-farm", "build_report")
    assert (data["client_session_id"], data["correlation_id"]) == ("session-1", "report-1")
    resumed = (await alice.post("/v1/resume", json={"resume_token": data["resume_token"]})).json()
    assert (resumed["call"]["id"], resumed["result"]) == (call_id, RESULT)
    since = (await alice.post("/v1/resume", json={"resume_token": begun["resume_token"]})).json()
    assert [event["name"] for event in since["events"]] == ["call.progress", "call.finished"]


async def test_a_report_of_the_end_alone_creates_the_call(
    reporter: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    answer = await reporter.post("/v1/calls/report", json=REPORT | {"result": RESULT})
    assert answer.status_code == 200
    assert answer.json()["call"]["status"] == "completed"
    resumed = (await alice.post("/v1/resume", json={"resume_token": answer.json()["resume_token"]})).json()
    assert [event["name"] for event in resumed["events"]] == ["call.finished"]


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("end", "status", "outcome"),
    [
        ({"result": RESULT, "status": "completed"}, "completed", "result"),
        ({"result": RESULT | {"isError": True}}, "completed", "tool_error"),
        ({"error": {"code": -32000, "message": "no paper", "data": {"tray": 2}}}, "failed", "upstream_error"),
        ({"status": "cancelled"}, "cancelled", "cancelled"),
    ],
)
async def test_every_reported_outcome_is_stored_as_reported(
    reporter: httpx.AsyncClient, end: dict[str, Any], status: str, outcome: str
) -> None:
    call = (await report(reporter, REPORT | end))["call"]
    assert (call["status"], call["outcome"]) == (status, outcome)
    assert (call["error"] and call["error"]["jsonrpc"]) == end.get("error")


async def test_no_runner_leases_a_reported_call_of_a_configured_upstream(
    service: ServiceUnderTest, reporter: httpx.AsyncClient
) -> None:
    await report(reporter, REPORT | {"upstream": "git", "tool": "git_log"})
    leased = await service.store.write(
        lambda tx: tx.call_queue.lease_queued("git", owner="runner", token="t", until=tx.now() + seconds(30), limit=10)
    )
    await service.run_janitor()
    assert leased == []


async def test_progress_is_sent_to_webhooks_that_selected_it(
    service: ServiceUnderTest, reporter: httpx.AsyncClient
) -> None:
    callback = {"url": CALLBACK_URL, "events": ["call.progress"]}
    await report(reporter, REPORT | {"callback": callback, "progress": {"progress": 1}})
    await report(reporter, LATER | {"progress": {"progress": 2}})
    reported = [
        orjson.loads(delivery.body)["data"]["progress"]["progress"]
        for delivery in await service.read_deliveries("alice")
    ]
    assert reported == [2.0, 1.0]


# -- again, and otherwise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [{"result": RESULT}, {"error": {"code": 1, "message": "no"}}, {"status": "cancelled"}])
async def test_a_repeated_report_gets_the_same_response_and_sends_no_callback(
    service: ServiceUnderTest, reporter: httpx.AsyncClient, end: dict[str, Any]
) -> None:
    body = REPORT | {"callback": {"url": CALLBACK_URL}, "progress": {"progress": 1}} | end
    first = await report(reporter, body)
    rows = service.count_rows()
    again = await report(reporter, body)
    assert again["call"] == first["call"]
    assert first["callback_secret"].startswith("whsec_")
    assert again["callback_secret"] == first["callback_secret"]
    assert service.count_rows() == rows


async def test_a_result_is_the_same_whatever_the_order_of_its_members(reporter: httpx.AsyncClient) -> None:
    first = await report(reporter, REPORT | {"result": RESULT})
    again = await report(reporter, LATER | {"result": dict(reversed(RESULT.items()))})
    assert again["call"] == first["call"]


@pytest.mark.parametrize("end", [{"result": RESULT | {"isError": True}}, {"status": "cancelled"}])
async def test_a_second_different_completion_is_refused(
    service: ServiceUnderTest, reporter: httpx.AsyncClient, end: dict[str, Any]
) -> None:
    call = (await report(reporter, REPORT | {"result": RESULT}))["call"]
    rows = service.count_rows()
    problem = await assert_rejected(reporter, LATER | end, status=409)
    assert (problem["type"], problem["call_status"]) == ("/problems/call-ended", "completed")
    assert service.count_rows() == rows
    assert (await report(reporter, LATER))["call"] == call


async def test_progress_after_the_end_is_ignored(service: ServiceUnderTest, reporter: httpx.AsyncClient) -> None:
    call = (await report(reporter, REPORT | {"result": RESULT}))["call"]
    rows = service.count_rows()
    assert (await report(reporter, LATER | {"progress": {"progress": 9}}))["call"] == call
    assert service.count_rows() == rows


@pytest.mark.parametrize(
    "other",
    [
        {"upstream": "git"},
        {"tool": "build_book"},
        {"arguments": {"year": 2025}},
        {"client_session_id": "session-2"},
        {"correlation_id": "report-2"},
        {"callback": {"url": "https://other.example/callback"}},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_key_names_one_call_and_no_other(reporter: httpx.AsyncClient, other: dict[str, Any]) -> None:
    await report(reporter, REPORT | {"callback": {"url": CALLBACK_URL}})
    problem = await assert_rejected(reporter, LATER | other, status=409)
    assert problem["type"] == "/problems/idempotency-conflict"


async def test_reports_and_starts_do_not_share_keys(reporter: httpx.AsyncClient) -> None:
    started = await reporter.post("/v1/calls", json=CALL_BODY, headers={"Idempotency-Key": "build-1"})
    reported = await report(reporter, REPORT)
    assert started.json()["call"]["id"] != reported["call"]["id"]


async def test_a_key_whose_call_has_expired_starts_nothing_new(
    service: ServiceUnderTest, reporter: httpx.AsyncClient
) -> None:
    await report(reporter, REPORT | {"result": RESULT})
    service.clock.advance(RETENTION_SECONDS + 60)
    await service.run_janitor()
    assert (await assert_rejected(reporter, REPORT | {"result": RESULT}, status=410))[
        "type"
    ] == "/problems/call-expired"


# -- what the reporter leaves behind ---------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
async def test_a_call_whose_reporter_vanished_ends_as_unknown(
    service: ServiceUnderTest, reporter: httpx.AsyncClient
) -> None:
    body = REPORT | {"callback": {"url": CALLBACK_URL}, "timeout_seconds": 60}
    begun = await report(reporter, body)
    service.clock.advance(61)
    await service.run_janitor()

    call = (await reporter.get(f"/v1/calls/{begun['call']['id']}")).json()
    assert (call["status"], call["outcome"]) == ("failed", "unknown")
    assert call["error"]["code"] == "unknown"
    (delivery,) = await service.read_deliveries("alice")
    assert orjson.loads(delivery.body)["data"]["outcome"] == "unknown"
    late = await assert_rejected(reporter, body | {"result": RESULT}, status=409)
    assert late["call_status"] == "failed"


async def test_a_cancellation_request_is_returned_to_the_reporter_who_ends_the_call(
    reporter: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    begun = await report(reporter, REPORT)
    asked = (await alice.post(f"/v1/calls/{begun['call']['id']}/cancel")).json()
    assert (asked["status"], asked["cancel_requested"]) == ("working", True)
    assert (await report(reporter, LATER))["call"]["cancel_requested"] is True
    assert (await report(reporter, LATER | {"status": "cancelled"}))["call"]["status"] == "cancelled"


# -- who may, and what ------------------------------------------------------------------------------------------------------


async def test_reporting_needs_the_scope_adopt(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    rows = service.count_rows()
    assert (await assert_rejected(alice, REPORT, status=403))["type"] == "/problems/forbidden"
    assert service.count_rows() == rows


async def test_a_report_with_a_callback_needs_the_scope_webhooks(service: ServiceUnderTest) -> None:
    narrow = await service.create_client("alice", scopes=frozenset({Scope.ADOPT}))
    await assert_rejected(narrow, REPORT | {"callback": {"url": CALLBACK_URL}}, status=403)
    await report(narrow, REPORT)


async def test_a_key_that_is_limited_to_upstreams_reports_of_those_only(service: ServiceUnderTest) -> None:
    limited = await service.create_client("alice", scopes=ALL_SCOPES, upstreams=frozenset({"build-farm"}))
    await report(limited, REPORT)
    await assert_rejected(limited, REPORT | {"upstream": "git", "key": "build-2"}, status=403)


@pytest.mark.requirement("R25")
async def test_a_report_key_of_another_principal_is_independent(
    service: ServiceUnderTest, reporter: httpx.AsyncClient
) -> None:
    bob = await service.create_client("bob", scopes=ALL_SCOPES)
    theirs, ours = await report(bob, REPORT), await report(reporter, REPORT)
    assert theirs["call"]["id"] != ours["call"]["id"]
    assert (await bob.get(f"/v1/calls/{ours['call']['id']}")).status_code == 404


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": ""}, "#/key"),
        ({"key": "x" * 257}, "#/key"),
        ({"key": "two\nlines"}, "#/key"),
        ({"upstream": "Build Farm"}, "upstream: names are"),
        ({"timeout_seconds": 0}, "#/timeout_seconds"),
        ({"progress": {"progress": "half"}}, "#/progress/progress"),
        ({"progress": {"progress": 1, "message": "x" * 1001}}, "#/progress/message"),
        ({"status": "input_required"}, "#/status"),
        ({"status": "completed"}, "Send `result`"),
        ({"status": "failed", "result": RESULT}, "Send `result`"),
        ({"status": "cancelled", "result": RESULT}, "Send `result`"),
        ({"status": "working", "error": {"code": 1, "message": "no"}}, "Send `result`"),
        ({"result": RESULT, "error": {"code": 1, "message": "no"}}, "Send `result`"),
        ({"result": {"content": "all is well"}}, "not a CallToolResult"),
        ({"result": {"content": [{"text": "no type"}]}}, "not a CallToolResult"),
        ({"error": {"message": "no code"}}, "#/error/code"),
        ({"callback": {"url": "http://inside.example/"}}, "https"),
        ({"outcome": "result"}, "#/outcome"),
    ],
)
async def test_an_inconsistent_report_is_refused_and_nothing_is_written(
    service: ServiceUnderTest, reporter: httpx.AsyncClient, wrong: dict[str, Any], says: str
) -> None:
    rows = service.count_rows()
    problem = await assert_rejected(reporter, REPORT | wrong, status=422)
    assert says in problem["detail"]
    assert service.count_rows() == rows


async def test_the_size_limit_of_results_holds_without_a_request_body() -> None:
    with pytest.raises(InvalidRequest, match="larger than"):
        parse_result_completion({"content": [{"type": "text", "text": "x" * REPORTED_RESULT_BYTES_MAX}]})


async def test_a_report_during_shutdown_is_written_if_its_call_is_known(
    service: ServiceUnderTest, reporter: httpx.AsyncClient
) -> None:
    await report(reporter, REPORT)
    service.services.lifecycle.begin_shutdown()
    await assert_rejected(reporter, REPORT | {"key": "build-2"}, status=503)
    assert (await report(reporter, LATER | {"result": RESULT}))["call"]["status"] == "completed"
