"""The OpenAPI document matches the code, is complete, and matches the service's responses."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import orjson
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from ringback.domain.call import CallStatus, Progress, apply_completion
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.change_subscriptions import change_name
from ringback.domain.cursor import LogPosition
from ringback.domain.erasure import erase_event
from ringback.domain.event import Event, EventName, build_call_event, build_upstream_event
from ringback.domain.event_types import PUBLISHED_NAME_PATTERN
from ringback.domain.ids import DeliveryId, EventId
from ringback.domain.principal import Scope
from ringback.domain.upstreams import Listing, UpstreamChange
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_health import build_webhook_event
from ringback.notifier.payload import (
    PayloadBuilder,
    build_callback_headers,
    build_gap_delivery,
    build_verification_body,
)
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.schemas.fields import WORDS_BY_PATTERN
from ringback.schemas.schema_examples import EXAMPLES_BY_SCHEMA
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.telemetry.spans import TRACEPARENT
from ringback.upstreams.faults import Fault
from tests.support.clock import START
from tests.support.examples import ALICE, CALL, WEBHOOK
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service

ROOT = Path(__file__).parents[2]
EXPORT = "ringback.api.openapi_export"
COMMITTED = (ROOT / "openapi" / "ringback.json").read_text(encoding="utf-8")
DOCUMENT: dict[str, Any] = json.loads(COMMITTED)
"""The committed document. One test compares it with the code, because building it takes a second in each worker."""

PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
"""The content of every error."""

Operation = tuple[str, str, dict[str, Any]]


def operations(section: str) -> Iterator[Operation]:
    for path, methods in DOCUMENT[section].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


SERVED_OPERATIONS = list(operations("paths"))
SENT_OPERATIONS = list(operations("webhooks"))


def content_schema(content: dict[str, Any]) -> str | None:
    """The name of the schema of a JSON body."""
    reference = content.get("application/json", {}).get("schema", {}).get("$ref")
    return reference.rpartition("/")[2] if reference else None


def list_schema_errors(schema: str, value: Any) -> list[str]:
    root = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    validator = cast("Any", Draft202012Validator(root, format_checker=Draft202012Validator.FORMAT_CHECKER))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


# -- the document ----------------------------------------------------------------------------------------------------------


def test_the_module_prints_the_committed_document_in_every_process(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], *, deep: bool
) -> None:
    """The seed of this process's hashes differs from one run to the next, unless the environment names it."""
    monkeypatch.setattr(sys, "argv", ["openapi_export"])
    monkeypatch.delitem(sys.modules, EXPORT, raising=False)  # another test may have imported it
    runpy.run_module(EXPORT, run_name="__main__")

    written = capsysbinary.readouterr().out
    assert written == COMMITTED.encode(), "Run scripts/openapi and commit the change."
    if deep or os.environ.get("PYTHONHASHSEED", "random") != "random":
        assert _write_in_process(seed="1" if os.environ.get("PYTHONHASHSEED") != "1" else "2") == written


def _write_in_process(*, seed: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", EXPORT],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=True,
    ).stdout


def test_the_document_is_valid_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    validate(DOCUMENT)


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for _, _, operation in [*SERVED_OPERATIONS, *SENT_OPERATIONS]]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


def test_every_operation_describes_itself_and_its_errors() -> None:
    for _, path, operation in SERVED_OPERATIONS:
        name = operation["operationId"]
        assert operation["summary"], name
        assert operation["description"], name
        problems = {
            status: answer["content"]
            for status, answer in operation["responses"].items()
            if not status.startswith(("2", "3"))
        }
        assert "default" in problems, name
        assert [content for content in problems.values() if content != PROBLEM] == [], name
        if path.startswith("/v1/"):
            assert operation["security"] == [{"apiKey": []}], name
            assert {"401", "403"} <= set(problems), name
        if "requestBody" in operation:
            assert {"400", "413", "415", "422"} <= set(problems), name


def test_every_pattern_has_words_for_the_client_whose_value_does_not_match() -> None:
    written = set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', COMMITTED))

    assert {json.loads(pattern) for pattern in written} - {PUBLISHED_NAME_PATTERN} == set(WORDS_BY_PATTERN)


def test_an_operation_shows_an_example_of_all_that_goes_in_and_out() -> None:
    for _, _, operation in SERVED_OPERATIONS:
        name = operation["operationId"]
        bodies = [operation.get("requestBody", {})]
        bodies += [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        for body in bodies:
            for media in body.get("content", {}).values():
                reference = media["schema"].get("$ref", "").rpartition("/")[2]
                assert "example" in media or reference in EXAMPLES_BY_SCHEMA, name
        for parameter in operation.get("parameters", []):
            assert parameter["in"] != "path" or parameter["schema"]["examples"], name


def test_an_example_fits_its_schema() -> None:
    for schema in (*EXAMPLES_BY_SCHEMA, "Problem"):
        for example in DOCUMENT["components"]["schemas"][schema]["examples"]:
            assert list_schema_errors(schema, example) == [], schema


# -- the truth -------------------------------------------------------------------------------------------------------------


async def test_responses_of_the_service_match_the_document(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        alice = await service.create_client("alice", scopes=frozenset(Scope))
        ids = await _create_one_of_each(service, alice)
        for method, path, operation in SERVED_OPERATIONS:
            if method != "GET" or path == "/v1/events/stream":  # the stream does not end
                continue
            answer = await alice.get(path.format(**ids))
            described = operation["responses"][str(answer.status_code)]
            if schema := content_schema(described["content"]):
                assert list_schema_errors(schema, answer.json()) == [], path


async def test_resources_that_the_service_creates_match_the_document(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        alice = await service.create_client("alice", scopes=frozenset(Scope))
        body = CALL_BODY | {"callback": {"url": CALLBACK_URL}}
        started = await alice.post("/v1/calls", json=body)
        await service.finish_call(started.json()["call"]["id"])
        batched = await alice.post("/v1/calls/batch", json={"calls": [body, CALL_BODY]})
        named = await alice.put("/v1/webhooks/by-name/agent", json={"url": CALLBACK_URL, "outcomes": ["unknown"]})
        registered = await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
        changed = await alice.patch(registered.headers["location"], json={"state": "disabled"})
        resumed = await alice.post("/v1/resume", json={"resume_token": started.json()["resume_token"]})
        refused = await alice.post("/v1/webhooks", json={"url": 7})
        await alice.patch(registered.headers["location"], json={"state": "active"})
        tested = await alice.post(f"{registered.headers['location']}/test")
        rotated = await alice.post(f"{registered.headers['location']}/rotate-secret")
        replayed = await alice.post(f"{registered.headers['location']}/replay", json={"dead": True})
        redelivered = await alice.post(f"/v1/deliveries/{tested.json()['id']}/redeliver")
        joined = await alice.post("/v1/calls/wait", json={"call_ids": [started.json()["call"]["id"]]})
        token = await alice.post(f"/v1/calls/{started.json()['call']['id']}/resume-token")
        key = await alice.post("/v1/keys", json={"principal": "bob"})
        rotated_key = await alice.post(f"{key.headers['location']}/rotate")

        assert list_schema_errors("StartedCallView", started.json()) == []
        assert list_schema_errors("StartedBatchView", batched.json()) == []
        assert list_schema_errors("RegisteredWebhookView", named.json()) == []
        assert list_schema_errors("RegisteredWebhookView", registered.json()) == []
        assert list_schema_errors("WebhookView", changed.json()) == []
        assert list_schema_errors("ResumedView", resumed.json()) == []
        assert list_schema_errors("Problem", refused.json()) == []
        assert list_schema_errors("DeliveryView", tested.json()) == []
        assert list_schema_errors("RotatedWebhookView", rotated.json()) == []
        assert list_schema_errors("ReplayedView", replayed.json()) == []
        assert list_schema_errors("DeliveryView", redelivered.json()) == []
        assert list_schema_errors("JoinedCallsView", joined.json()) == []
        assert list_schema_errors("ResumeTokenView", token.json()) == []
        assert list_schema_errors("CreatedKeyView", key.json()) == []
        assert list_schema_errors("RotatedKeyView", rotated_key.json()) == []


@pytest.mark.requirement("R23")
async def test_callbacks_match_the_document(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        alice = await service.create_client("alice")
        wanted = {"url": CALLBACK_URL, "correlation_id": "inbox-3", "include_result": True}
        events = ["call.finished", "call.progress"]
        await alice.post("/v1/webhooks", json=wanted | {"events": events})
        ids = await _create_one_of_each(service, alice)
        await alice.post(f"/v1/webhooks/{ids['webhook_id']}/test")
        await alice.put("/v1/event-types/order.paid", json={})
        await alice.post("/v1/webhooks", json=wanted | {"events": ["order.paid"]})
        await alice.post("/v1/events", json={"name": "order.paid", "data": {"order_id": "o1"}})
        bodies = [orjson.loads(delivery.body) for delivery in await service.read_deliveries("alice")]

    described = {path: content_schema(operation["requestBody"]["content"]) for _, path, operation in SENT_OPERATIONS}
    assert {body["name"] for body in bodies} == {*events, "webhook.test", "order.paid"}
    for body in bodies:
        assert list_schema_errors(described.get(body["name"], described["published"]) or "", body) == []


def build_callback(event: Event) -> Any:
    """The body of a callback without a call to resume."""
    tokens = CallResumeTokens(ResumeTokenCodec([b"k" * 32], audience="test"), result_retention_seconds=1.0)
    payloads = PayloadBuilder(tokens=tokens, public_url="https://ringback.example")
    receiver = replace(WEBHOOK, correlation_id="inbox-3")
    return orjson.loads(payloads.build_event_body(event, receiver, call=None, watermark=LogPosition(1)))


def build_webhook_events() -> list[Event]:
    suspended = replace(WEBHOOK, state=WebhookState.SUSPENDED, failing_since=START, last_error="timeout")
    failing = replace(suspended, state=WebhookState.ACTIVE, alerted_percent=70)
    return [
        build_webhook_event(webhook, name, event_id=EventId("evt_1"), seq=2, now=START)
        for name, webhook in (
            (EventName.WEBHOOK_FAILING, failing),
            (EventName.WEBHOOK_SUSPENDED, suspended),
            (EventName.WEBHOOK_RECOVERED, WEBHOOK),
        )
    ]


@pytest.mark.parametrize("listing", [*Listing, None])
def test_callbacks_of_changed_upstreams_match_the_document(listing: Listing | None) -> None:
    uri = "file:///srv/report.md" if listing is None else None
    change = change_name(UpstreamChange(upstream="git", listing=listing, uri=uri))
    event = build_upstream_event(ALICE, "git", change=change, uri=uri, event_id=EventId("evt_1"), seq=2, now=START)
    assert list_schema_errors(describe_schema(event.name), build_callback(event)) == []


def test_callbacks_of_erased_events_match_the_document() -> None:
    """A subscription that begins again sends the stubs of what was erased meanwhile."""
    finished = apply_completion(
        CALL, completion_from_result(b"{}", is_error=True), now=START, result_retention_seconds=60
    )
    progressing = replace(CALL, progress=Progress(progress=1, total=2, message="private"))
    waiting = replace(CALL, status=CallStatus.INPUT_REQUIRED)
    calls = {
        EventName.CALL_FINISHED: finished,
        EventName.CALL_PROGRESS: progressing,
        EventName.CALL_INPUT_REQUIRED: waiting,
    }
    of_calls = [
        build_call_event(name, call, event_id=EventId("evt_1"), seq=7, now=START) for name, call in calls.items()
    ]
    for event in [*of_calls, *build_webhook_events()]:
        schema = describe_schema(event.name)
        body = build_callback(erase_event(event))
        assert list_schema_errors(schema, body) == []
        data = DOCUMENT["components"]["schemas"][schema]["properties"]["data"]["$ref"].rpartition("/")[2]
        assert body["data"].keys() <= DOCUMENT["components"]["schemas"][data]["properties"].keys()


def test_webhook_and_gap_envelopes_match_the_document() -> None:
    for event in build_webhook_events():
        assert list_schema_errors(describe_schema(event.name), build_callback(event)) == []
    gap = build_gap_delivery(WEBHOOK, position=LogPosition(6), delivery_id=DeliveryId("dlv_1"), now=START)
    assert list_schema_errors(describe_schema("gap"), orjson.loads(gap.body)) == []
    assert list_schema_errors(describe_schema("verification"), orjson.loads(build_verification_body("challenge"))) == []


def describe_schema(name: str) -> str:
    """The schema of the callback with this name."""
    (schema,) = [
        content_schema(operation["requestBody"]["content"]) for _, path, operation in SENT_OPERATIONS if path == name
    ]
    return schema or ""


def test_the_headers_of_a_callback_are_described() -> None:
    made = build_callback_headers(
        webhook_id="wh_1",
        message_id="evt_1",
        body=b"{}",
        secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        now=START,
    )
    for _, _, operation in SENT_OPERATIONS:
        described = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "header"}
        assert described == set(made) - {"content-type", "user-agent"} | {TRACEPARENT}


async def _create_one_of_each(service: ServiceUnderTest, alice: httpx.AsyncClient) -> dict[str, str]:
    """An id for every path parameter of the document."""
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    call = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.mark_dispatched(call)
    await service.record_progress(call, Progress(progress=1, total=2, message="half"))
    await service.finish_call(call)
    delivery = (await service.read_deliveries("alice"))[0].id
    key = (await service.services.api_keys.list_keys())[0].id
    await alice.put("/v1/webhooks/by-name/git", json={"url": CALLBACK_URL})
    erasure = (await alice.delete("/v1/sessions/none")).json()["id"]
    ids = {"webhook_id": webhook, "call_id": call, "delivery_id": delivery, "key_id": key, "erasure_id": erasure}
    return {**ids, "name": "git", "slug": "unknown-tool", "client_session_id": "none"}


def test_the_faults_of_an_upstream_are_all_named() -> None:
    """A client that reads an undocumented kind cannot tell what is wrong."""
    described = DOCUMENT["components"]["schemas"]["UpstreamView"]["properties"]["faults"]["description"]

    assert [fault for fault in Fault if fault not in described] == []
