"""The log of a whole service: each line has the ids with which an operator follows a request, a call and its callback."""

import json
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from ringback.log_context import ContextFilter
from ringback.telemetry.logs import JsonFormatter
from tests.support.application import PUBLIC_URL, RunningApplication, running_with_upstream
from tests.support.engine import wait_until
from tests.support.mcp_wire import ModernClient, legacy_session
from tests.support.service import CALL_BODY, running_service
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, serving

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"X-Request-Id": "proxy-17", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
IDS = {"client_session_id": "session-7", "correlation_id": "report-1"}

Line = dict[str, Any]


class LogLines(logging.Handler):
    """The lines that the service would write, as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.addFilter(ContextFilter())
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def named(self, event: str) -> list[Line]:
        return [line for line in self.lines if line["event"] == event]

    async def wait_for_line(self, event: str) -> Line:
        async def is_written() -> bool:
            return bool(self.named(event))

        await wait_until(is_written)
        return self.named(event)[0]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Generator[LogLines]:
    caplog.set_level(logging.DEBUG, logger="ringback")
    handler = LogLines()
    logging.getLogger("ringback").addHandler(handler)
    yield handler
    logging.getLogger("ringback").removeHandler(handler)


async def create_key(ringback: RunningApplication) -> str:
    _, key = await ringback.app.services.api_keys.create_key("alice", name="t", scopes=DEFAULT_SCOPES, upstreams=None)
    return key


def shown(line: Line, *names: str) -> dict[str, Any]:
    return {name: line.get(name) for name in names}


async def test_a_request_over_rest_its_call_and_its_callback_are_found_by_their_ids(
    tmp_path: Path, log: LogLines
) -> None:
    async with running_with_upstream(tmp_path, ControlledUpstream()) as (ringback, phone):
        headers = {"Authorization": f"Bearer {await create_key(ringback)}", **HEADERS}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(ringback.app.api), base_url=PUBLIC_URL, headers=headers
        ) as http:
            body = {"upstream": "stage", "tool": "echo", "arguments": {"text": "x"}, "callback": {"url": phone.url}}
            started = await http.post("/v1/calls", json=body | IDS)
            generated = await http.get("/v1/calls", headers={"X-Request-Id": "no id at all"})
        attempted = await log.wait_for_line("delivery.attempted")

    call_id = started.json()["call"]["id"]
    facts = {"call_id": call_id, **IDS}
    (began,), (ended,) = log.named("call.started"), log.named("call.finished")
    assert started.headers["x-request-id"] == "proxy-17"
    assert shown(began, *facts, "request_id", "trace_id", "principal") == facts | {
        "request_id": "proxy-17",
        "trace_id": TRACE,
        "principal": "alice",
    }
    assert shown(ended, *facts) == facts
    assert "request_id" not in ended  # the call belongs to no request any more
    assert shown(attempted, *facts) == facts
    assert attempted["webhook_id"].startswith("wh_")
    assert "request_id" not in attempted
    assert generated.headers["x-request-id"] not in {"no id at all", "proxy-17"}
    routes = [shown(line, "route", "status") for line in log.named("request.finished")]
    assert {"route": "/v1/calls", "status": 202} in routes


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_request_over_mcp_and_its_call_are_found_by_their_ids(tmp_path: Path, log: LogLines, era: str) -> None:
    """In a legacy session each request has its own id, and not that of the request which opened the session."""
    names = {"Ringback-Client-Session-Id": "session-7", "Ringback-Correlation-Id": "report-1"}
    params = {"name": "echo", "arguments": {"text": "x"}}
    async with (
        running_with_upstream(tmp_path, ControlledUpstream()) as (ringback, _),
        serving(ringback.app.api) as server,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        url, key = f"http://127.0.0.1:{server.port}/mcp/stage", await create_key(ringback)
        if era == "modern":
            await ModernClient(http, url, key).request("tools/call", params, headers={**HEADERS, **names})
        else:
            async with legacy_session(http, url, key=key) as session:
                session.headers |= {**HEADERS, **names}
                await session.request("tools/call", params)
        ended = await log.wait_for_line("call.finished")

    (began,) = log.named("call.started")
    assert shown(began, *IDS, "request_id", "trace_id") == IDS | {"request_id": "proxy-17", "trace_id": TRACE}
    assert shown(ended, "call_id", *IDS) == {"call_id": began["call_id"], **IDS}
    assert "request_id" not in ended


async def test_a_cancelled_call_that_never_ran_has_a_line_of_its_end(tmp_path: Path, log: LogLines) -> None:
    async with running_service(tmp_path) as service:
        alice = await service.create_client("alice")
        cancelled = (await alice.post("/v1/calls", json=CALL_BODY | IDS)).json()["call"]["id"]
        await alice.post(f"/v1/calls/{cancelled}/cancel")
        await alice.post(f"/v1/calls/{cancelled}/cancel")

    (ended,) = log.named("call.finished")
    facts = {"call_id": cancelled, **IDS, "tool": CALL_BODY["tool"], "outcome": "cancelled"}
    assert shown(ended, *facts) == facts
