"""A Ringback in the memory of a driver's process, behind the real client: calls end when the driver says so."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from ringback.client import RingbackClient

UPSTREAM = "stage"
TOOLS = ("slow", "other")
INPUT_SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
NOW = datetime.now(UTC).isoformat()  # noqa: TID251 - the adapters compare it with the system's clock


class CallExpired(Exception):
    """The fake knows that there was such a call, and nothing else of it."""


@dataclass
class FakeRingback:
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By idempotency key."""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By call_id."""
    answers: dict[str, Any] = field(default_factory=dict)
    """By the question's key."""
    expired: set[str] = field(default_factory=set)
    """The ids of calls whose results are not kept any more."""
    is_down: bool = False
    """Refuses new calls with 503."""
    down_for: set[str] = field(default_factory=set)
    """The same for these client_session_ids."""
    ends_at_once: bool = False
    """Every call has ended when it is started."""
    is_upstream_missing: bool = False
    """Refuses new calls with 404."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Methods and paths."""

    def client(self) -> RingbackClient:
        return RingbackClient("http://ringback.example", transport=httpx.MockTransport(self.respond), clock=NoWaits())

    def end(self, call: dict[str, Any], text: str = "the result", *, is_error: bool = False) -> None:
        outcome = "tool_error" if is_error else "result"
        call.update(status="completed", outcome=outcome, finished_at=NOW)
        self.results[call["id"]] = {"content": [{"type": "text", "text": text}], "isError": is_error}

    def ask(self, call: dict[str, Any], key: str) -> None:
        """The tool asks; an answer needs an `action`."""
        params = {"message": "Which branch?", "requestedSchema": {"type": "object", "properties": {}}}
        call.update(status="input_required", input_requests={key: {"method": "elicitation/create", "params": params}})

    def callback(self, call: Mapping[str, Any]) -> dict[str, Any]:
        data = {name: call[name] for name in ("client_session_id", "correlation_id")} | {"call_id": call["id"]}
        return {"eventId": f"evt_{call['id']}", "name": "call.finished", "timestamp": NOW, "data": data}

    @property
    def starts(self) -> int:
        """How many times a start was requested."""
        return self.requests.count(("POST", "/v1/calls"))

    @property
    def result_reads(self) -> int:
        return len([path for method, path in self.requests if method == "GET" and path.endswith("/result")])

    @property
    def started(self) -> list[dict[str, Any]]:
        return list(self.calls.values())

    def respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        try:
            return self._respond(request)
        except CallExpired:
            return problem(410, "call-expired", "The call has expired.")

    def _respond(self, request: httpx.Request) -> httpx.Response:
        match request.method, request.url.path.split("/")[2:]:
            case "GET", ["upstreams", _, "tools"]:
                tools = [{"name": name, "description": name, "inputSchema": INPUT_SCHEMA} for name in TOOLS]
                return httpx.Response(200, json={"tools": tools})
            case "POST", ["calls"]:
                return self._start(request)
            case "POST", ["calls", "wait"]:
                calls = [self._find(call_id) for call_id in json.loads(request.content)["call_ids"]]
                return httpx.Response(200, json={"calls": calls, "done": all("outcome" in call for call in calls)})
            case "GET", ["calls", call_id]:
                return httpx.Response(200, json=self._find(call_id))
            case "GET", ["calls", call_id, "result"]:
                return httpx.Response(200, json=self.results[call_id])
            case "POST", ["calls", call_id, "input"]:
                return self._take_answers(call_id, json.loads(request.content)["responses"])
            case unexpected:
                raise AssertionError(unexpected)

    def _find(self, call_id: str) -> dict[str, Any]:
        if call_id in self.expired:
            raise CallExpired
        return next(call for call in self.started if call["id"] == call_id)

    def _start(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            return problem(503, "down", "The service is stopping.")
        if self.is_upstream_missing:
            return problem(404, "upstream-not-found", "There is no upstream 'stage'.")
        body = json.loads(request.content)
        if body.get("client_session_id") in self.down_for:
            return problem(503, "down", "The upstream is drained.")
        if "key" not in body["arguments"]:
            return problem(422, "invalid-arguments", "'key' is a required property")
        key = request.headers["idempotency-key"]
        if key not in self.calls:
            ids = {name: body.get(name) for name in ("client_session_id", "correlation_id")}
            call = {"id": f"call_{len(self.calls)}", "status": "working", "created_at": NOW, **ids}
            self.calls[key] = call | {"upstream": body["upstream"], "tool": body["tool"]}
            if self.ends_at_once:
                self.end(self.calls[key])
        call = self._find(self.calls[key]["id"])
        return httpx.Response(202, json={"call": call, "resume_token": "token", "webhooks": []})

    def _take_answers(self, call_id: str, answers: Mapping[str, Any]) -> httpx.Response:
        if any("action" not in answer for answer in answers.values()):
            return problem(422, "invalid-answer", "'action' is a required property")
        call = self._find(call_id)
        self.answers.update(answers)
        call.update(status="working", input_requests={})
        return httpx.Response(200, json={"call": call, "accepted": list(answers), "ignored": []})


class NoWaits:
    """The client's clock: its retries do not wait."""

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        del seconds


def problem(status: int, slug: str, detail: str) -> httpx.Response:
    document = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": detail}
    return httpx.Response(status, json=document, headers={"content-type": "application/problem+json"})
