"""The request of each method, and its parsed response. The responses are the examples of the OpenAPI document."""

import ssl
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import respx

from ringback.client import CallbackOptions, RingbackClient
from ringback.schemas import examples, schema_examples
from tests.support.clock import FakeClock
from tests.support.mocked_requests import get_last_request, list_requests, parse_body, parse_query

CALL = examples.WORKING_CALL
FINISHED = examples.FINISHED_CALL
STARTED: dict[str, Any] = {"call": CALL, "resume_token": "token", "webhooks": []}


# -- webhooks --


async def test_registering_sends_only_the_given_options(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/webhooks").respond(201, json=examples.REGISTERED_WEBHOOK)

    webhook = await client.register_webhook("https://agent.example/callback", events=["call.finished"], tool="git_log")

    assert parse_body(get_last_request(route)) == {
        "url": "https://agent.example/callback",
        "events": ["call.finished"],
        "tool": "git_log",
    }
    assert webhook.secret == examples.REGISTERED_WEBHOOK["secret"]
    assert webhook.hears == examples.REGISTERED_WEBHOOK["hears"]


async def test_a_webhook_is_put_read_and_removed_by_its_name(client: RingbackClient, service: respx.MockRouter) -> None:
    put = service.put("/v1/webhooks/by-name/reports-agent").respond(201, json=examples.REGISTERED_WEBHOOK)
    service.get("/v1/webhooks/by-name/reports-agent").respond(json={**examples.WEBHOOK, "name": "reports-agent"})
    service.delete("/v1/webhooks/by-name/reports-agent").respond(204)

    await client.put_webhook("reports-agent", "https://agent.example/callback", outcomes=["unknown"])
    named = await client.named_webhook("reports-agent")
    await client.delete_named_webhook("reports-agent")

    assert parse_body(get_last_request(put)) == {"url": "https://agent.example/callback", "outcomes": ["unknown"]}
    assert named.name == "reports-agent"


async def test_lists_go_on_from_page_to_page(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/webhooks")
    route.side_effect = [
        httpx.Response(200, json={"webhooks": [examples.WEBHOOK], "next_cursor": "second"}),
        httpx.Response(200, json={"webhooks": [examples.WEBHOOK], "next_cursor": None}),
    ]

    webhooks = [webhook async for webhook in client.webhooks()]

    assert [webhook.id for webhook in webhooks] == [examples.WEBHOOK["id"]] * 2
    assert [parse_query(request) for request in list_requests(route)] == [{}, {"cursor": "second"}]


async def test_a_webhook_is_read_changed_and_removed(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get("/v1/webhooks/wh_1").respond(json=examples.WEBHOOK)
    patch = service.patch("/v1/webhooks/wh_1").respond(json={**examples.WEBHOOK, "state": "disabled"})
    service.delete("/v1/webhooks/wh_1").respond(204)

    webhook = await client.webhook("wh_1")
    changed = await client.change_webhook("wh_1", state="disabled")
    await client.delete_webhook("wh_1")

    assert (webhook.state, changed.state) == ("active", "disabled")
    assert parse_body(get_last_request(patch)) == {"state": "disabled"}


async def test_a_webhook_is_tested_and_replayed(client: RingbackClient, service: respx.MockRouter) -> None:
    delivery = {**examples.DELIVERY, "call_id": None}
    service.post("/v1/webhooks/wh_1/test").respond(202, json=delivery)
    replay = service.post("/v1/webhooks/wh_1/replay").respond(202, json={"replayed": 3, "still_open": 1, "more": False})
    service.post("/v1/deliveries/dlv_1/redeliver").respond(202, json={**examples.DELIVERY, "generation": 2})

    test = await client.test_webhook("wh_1")
    since = await client.replay_webhook("wh_1", since=datetime(2026, 11, 20, 17, tzinfo=UTC))
    await client.replay_webhook("wh_1", cursor="a")
    await client.replay_webhook("wh_1", dead=True)

    assert test.call_id is None
    assert (since.replayed, since.still_open, since.more) == (3, 1, False)
    assert [parse_body(request) for request in list_requests(replay)] == [
        {"since": "2026-11-20T17:00:00+00:00"},
        {"cursor": "a"},
        {"dead": True},
    ]
    assert (await client.redeliver("dlv_1")).generation == 2


async def test_a_secret_is_rotated_to_the_given_or_a_generated_one(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    (answer,) = schema_examples.EXAMPLES_BY_SCHEMA["RotatedWebhookView"]
    route = service.post("/v1/webhooks/wh_1/rotate-secret").respond(json=answer)

    rotated = await client.rotate_secret("wh_1")
    await client.rotate_secret("wh_1", secret=examples.SECRET, overlap_seconds=0)

    assert rotated.secret == examples.SECRET
    assert rotated.overlap_ends_at.tzinfo == UTC
    assert examples.SECRET not in repr(rotated)
    assert [parse_body(request) for request in list_requests(route)] == [
        {},
        {"secret": examples.SECRET, "overlap_seconds": 0},
    ]


# -- calls --


async def test_requests_for_input_are_read_with_the_call_and_answered_by_their_keys(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get("/v1/calls/call_1").respond(json=examples.INPUT_REQUIRED_CALL)
    route = service.post("/v1/calls/call_1/input").respond(json={**examples.ANSWERED, "ignored": ["r0.1"]})

    call = await client.call("call_1")
    answered = await client.answer("call_1", {"r1.1": {"action": "accept", "content": {"branch": "main"}}})

    assert call.input_requests["r1.1"].params["message"] == "Which branch?"
    assert parse_body(get_last_request(route)) == examples.ANSWER
    assert (answered.accepted, answered.ignored, answered.call.status) == (("r1.1",), ("r0.1",), "working")


async def test_starting_sends_the_call_and_a_key_of_its_own(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").respond(202, json=STARTED)

    started = await client.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
    await client.start_call("git", "git_log", {"repo_path": "."})

    assert started.call.id == CALL["id"]
    assert not started.call.final
    first, second = (request.headers["idempotency-key"] for request in list_requests(route))
    assert len({first, second}) == 2
    assert parse_body(list_requests(route)[0]) == {
        "upstream": "git",
        "tool": "git_log",
        "arguments": {"repo_path": "."},
        "correlation_id": "c1",
    }


async def test_starting_takes_your_key_and_your_callback(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").respond(202, json={**STARTED, "callback_secret": "whsec_x", "hint": "do this"})

    started = await client.start_call(
        "git",
        "git_log",
        client_session_id="s1",
        idempotency_key="the report of today",
        callback=CallbackOptions(url="https://agent.example/callback", include_result=True),
        timeout_seconds=60,
    )

    assert get_last_request(route).headers["idempotency-key"] == "the report of today"
    assert parse_body(get_last_request(route))["callback"] == {
        "url": "https://agent.example/callback",
        "include_result": True,
    }
    assert parse_body(get_last_request(route))["timeout_seconds"] == 60
    assert (started.callback_secret, started.hint) == ("whsec_x", "do this")


async def test_a_start_with_a_wait_returns_the_result(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").respond(200, json={**STARTED, "call": FINISHED, "result": {"content": []}})

    started = await client.start_call("git", "git_log", wait_seconds=10)

    assert parse_body(get_last_request(route))["wait_seconds"] == 10
    assert started.call.final
    assert started.result == {"content": []}


async def test_a_call_is_read_with_all_that_is_known_of_it(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get(f"/v1/calls/{FINISHED['id']}").respond(
        json={**FINISHED, "progress": {"progress": 1, "total": None, "message": "reading"}}
    )

    call = await client.call(FINISHED["id"])

    assert (call.status, call.outcome, call.final) == ("completed", "result", True)
    assert call.finished_at is not None
    assert call.finished_at.tzinfo == UTC
    assert call.progress is not None
    assert call.progress.message == "reading"


async def test_several_calls_are_waited_for_in_one_request_after_the_other(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.post("/v1/calls/wait")
    route.side_effect = [
        httpx.Response(200, json={"calls": [CALL, FINISHED], "done": False}),
        httpx.Response(200, json={"calls": [FINISHED, FINISHED], "done": True}),
        httpx.Response(200, json={"calls": [CALL], "done": False}),
        httpx.Response(200, json={"calls": [CALL], "done": False}),
    ]

    every = await client.wait_all(["call_1", "call_2"])
    some = await client.wait_any(["call_1"], timeout_seconds=0.5)

    assert [call.final for call in every] == [True, True]
    assert [call.status for call in some] == ["working"]
    assert [parse_body(request) for request in list_requests(route)] == [
        *[{"call_ids": ["call_1", "call_2"], "mode": "all", "wait_seconds": 45.0}] * 2,
        {"call_ids": ["call_1"], "mode": "any", "wait_seconds": 0.5},
        {"call_ids": ["call_1"], "mode": "any", "wait_seconds": 0.0},
    ]
    assert clock.monotonic() == 1.5


async def test_a_fresh_token_may_be_the_only_one(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls/call_1/resume-token").respond(json={"resume_token": "fresh"})

    assert await client.fresh_resume_token("call_1", revoke_older=True) == "fresh"
    assert parse_body(get_last_request(route)) == {"revoke_older": True}


async def test_calls_are_found_by_your_own_ids(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/calls").respond(json={"calls": [CALL, FINISHED], "next_cursor": None})

    found = [call.id async for call in client.calls(client_session_id="s1", status="working")]

    assert found == [CALL["id"], FINISHED["id"]]
    assert parse_query(get_last_request(route)) == {"client_session_id": "s1", "status": "working"}


async def test_the_result_is_unchanged_from_the_upstream(client: RingbackClient, service: respx.MockRouter) -> None:
    result = {"content": [{"type": "text", "text": "é"}], "_meta": {"x": [1, 2.5, None]}, "isError": False}
    service.get("/v1/calls/call_1/result").respond(json=result)

    assert await client.result("call_1") == result


async def test_cancelling_gives_the_call_as_it_is_then(client: RingbackClient, service: respx.MockRouter) -> None:
    service.post("/v1/calls/call_1/cancel").respond(json={**CALL, "cancel_requested": True})

    assert (await client.cancel("call_1")).cancel_requested


async def test_resuming_returns_call_result_events_and_a_new_token(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    answer: dict[str, Any] = {
        "call": FINISHED,
        "result": {"content": []},
        "events": [examples.EVENT],
        "resume_token": "fresh",
    }
    route = service.post("/v1/resume").respond(json=answer)

    resumed = await client.resume("token", wait_seconds=5)

    assert parse_body(get_last_request(route)) == {"resume_token": "token", "wait_seconds": 5}
    assert (resumed.call.id, resumed.resume_token) == (FINISHED["id"], "fresh")
    assert resumed.events[0].event_id == examples.EVENT["eventId"]


async def test_an_id_is_escaped_to_one_path_segment(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get(url__regex=r".*/v1/calls/.*").respond(json=CALL)

    await client.call("../webhooks?x=1")

    assert get_last_request(route).url.raw_path == b"/v1/calls/..%2Fwebhooks%3Fx%3D1"


# -- all requests and responses --


async def test_the_api_key_goes_along(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/upstreams").respond(json={"upstreams": []})

    await client.upstreams()

    assert get_last_request(route).headers["authorization"] == "Bearer rbk_example"


async def test_unknown_fields_of_a_newer_service_are_ignored(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get("/v1/calls/call_1").respond(json={**CALL, "status": "dreaming", "mood": {"good": True}})

    assert (await client.call("call_1")).status == "dreaming"


async def test_secrets_are_omitted_from_reprs(client: RingbackClient, service: respx.MockRouter) -> None:
    service.post("/v1/calls").respond(202, json={**STARTED, "resume_token": "tkn-1", "callback_secret": "whsec_1"})
    service.post("/v1/webhooks").respond(201, json={**examples.REGISTERED_WEBHOOK, "secret": "whsec_1"})

    shown = repr((await client.start_call("git", "git_log"), await client.register_webhook("https://agent.example")))

    assert "tkn-1" not in shown
    assert "whsec_1" not in shown


async def test_a_passed_httpx_client_stays_open(service: respx.MockRouter) -> None:
    service.get("/healthz").respond(200)
    async with httpx.AsyncClient() as http:
        async with RingbackClient("http://ringback.example:8090/", http=http) as client:
            assert await client.healthy()
        assert not http.is_closed


async def test_all_clients_of_a_process_load_the_certificates_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Mock(wraps=ssl.create_default_context)
    monkeypatch.setattr(ssl, "create_default_context", load)

    for _ in range(3):
        async with RingbackClient("https://ringback.example"):
            pass

    assert load.call_count <= 1


async def test_a_client_of_an_http_url_loads_no_certificates_and_would_trust_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", pytest.fail)
    contexts: list[ssl.SSLContext] = []

    class RecordedClient(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            contexts.append(options["verify"])
            super().__init__(**options)

    monkeypatch.setattr(httpx, "AsyncClient", RecordedClient)
    async with RingbackClient("http://127.0.0.1:1"):
        pass

    (context,) = contexts
    assert (context.verify_mode, context.get_ca_certs()) == (ssl.CERT_REQUIRED, [])
