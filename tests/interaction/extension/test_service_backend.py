"""A user's MCP server that reports to a Ringback: real server, client and service API."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from mcp import Client
from mcp_types import CallToolResult

from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.extension import Callbacks
from ringback.extension.report_outbox import ReportFailed, ReportRejected
from ringback.extension.service_backend import ServiceBackend
from tests.support.engine import wait_until
from tests.support.extension_servers import SECRET, UPSTREAM_NAME, FastClock, HeldTool, make_extension_server
from tests.support.service import CALLBACK_URL, PUBLIC_URL, ServiceUnderTest, running_service
from tests.support.upstreams import serving

pytestmark = pytest.mark.requirement("R29")

META: Any = {
    "ringback/callback": {"url": CALLBACK_URL, "secret": SECRET},
    "ringback/correlationId": "c1",
    "ringback/clientSessionId": "s1",
}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path) as service:
        yield service


@pytest.fixture
async def alice(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("alice")


class ServiceTransport(httpx.AsyncBaseTransport):
    """The connection to the service, which a test can close; `passed` has the bodies that went through."""

    def __init__(self, service: ServiceUnderTest) -> None:
        self._transport = httpx.ASGITransport(service.app)
        self.open = asyncio.Event()
        self.open.set()
        self.passed: list[dict[str, Any]] = []
        self.tried = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.tried.set()
        if not self.open.is_set():
            raise httpx.ReadTimeout("no response")  # the client does not retry this error
        self.passed.append(json.loads(await request.aread()))
        return await self._transport.handle_async_request(request)


async def running_reporting_server(
    service: ServiceUnderTest, road: ServiceTransport | None = None, **options: Any
) -> Callbacks:
    api_key = await service.create_api_key("alice", scopes=DEFAULT_SCOPES | {Scope.ADOPT})
    return Callbacks.reporting(
        PUBLIC_URL, upstream=UPSTREAM_NAME, api_key=api_key, transport=road or ServiceTransport(service), **options
    )


@asynccontextmanager
async def make_client(callbacks: Callbacks, held: HeldTool | None = None) -> AsyncGenerator[Client]:
    app = make_extension_server(callbacks, held).streamable_http_app()
    async with callbacks, serving(app) as server, Client(server.url) as client:
        yield client


async def wait_for_ended_calls(alice: httpx.AsyncClient, count: int) -> list[dict[str, Any]]:
    """Alice's calls, once `count` have ended."""
    found: list[dict[str, Any]] = []

    async def reached() -> bool:
        found[:] = (await alice.get("/v1/calls")).json()["calls"]
        return len([call for call in found if call["finished_at"]]) >= count

    await wait_until(reached)
    return found


async def test_a_call_is_reported_from_its_beginning_to_its_end(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    held = HeldTool()
    async with make_client(await running_reporting_server(service, tools=()), held) as client:
        calling = asyncio.create_task(client.call_tool("build_slowly", {}, meta=META))
        await held.entered.wait()

        async def running() -> bool:
            return bool((await alice.get("/v1/calls?status=working")).json()["calls"])

        await wait_until(running)
        await client.call_tool("peek", {})  # after one round trip the report has its response too
        held.release.set()
        result = await calling
        (call,) = await wait_for_ended_calls(alice, 1)

    assert (call["upstream"], call["tool"], call["outcome"]) == (UPSTREAM_NAME, "build_slowly", "result")
    assert (call["correlation_id"], call["client_session_id"]) == ("c1", "s1")
    assert (result.meta or {})["ringback/callId"] == call["id"]
    (delivery,) = await service.read_deliveries("alice")
    assert orjson.loads(delivery.body)["data"]["call_id"] == call["id"]
    stored = (await alice.get(f"/v1/calls/{call['id']}/result")).json()
    assert CallToolResult.model_validate(stored).content == result.content


async def test_the_tool_does_not_wait_for_the_service_and_its_end_is_reported_later(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    road = ServiceTransport(service)
    road.open.clear()
    async with make_client(await running_reporting_server(service, road, clock=FastClock())) as client:
        result = await client.call_tool("build_report", {"about": "rain"}, meta=META)
        await road.tried.wait()
        road.open.set()
        (call,) = await wait_for_ended_calls(alice, 1)
    assert call["outcome"] == "result"
    assert "ringback/callId" not in (result.meta or {})
    assert [body.get("result") is not None for body in road.passed] == [True]


async def test_queued_reports_are_sent_before_the_server_stops(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    async with make_client(await running_reporting_server(service)) as client:
        for about in ("rain", "snow"):
            await client.call_tool("build_report", {"about": about}, meta=META)
    assert [call["outcome"] for call in (await alice.get("/v1/calls")).json()["calls"]] == ["result", "result"]


async def test_reports_that_could_not_be_sent_are_logged_as_lost(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    road = ServiceTransport(service)
    road.open.clear()
    async with make_client(await running_reporting_server(service, road, drain_seconds=0.01)) as client:
        await client.call_tool("build_report", {"about": "rain"}, meta=META)
    lost = [record for record in caplog.records if record.getMessage() == "reports.lost"]
    assert [getattr(record, "reports", None) for record in lost] == [1]
    assert SECRET not in caplog.text


async def test_a_rejected_report_changes_no_response(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    api_key = await service.create_api_key("alice")
    callbacks = Callbacks.reporting(
        PUBLIC_URL, upstream=UPSTREAM_NAME, api_key=api_key, transport=ServiceTransport(service)
    )
    async with make_client(callbacks) as client:
        result = await client.call_tool("build_report", {"about": "rain"}, meta=META)
    assert not result.is_error
    assert "report.refused" in {record.getMessage() for record in caplog.records}


async def test_a_server_that_stops_while_a_tool_runs_reports_no_end(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    held = HeldTool()
    async with make_client(await running_reporting_server(service, drain_seconds=0.01), held) as client:
        calling = asyncio.create_task(client.call_tool("build_slowly", {}, meta=META))
        await held.entered.wait()

        async def returned() -> bool:
            return bool((await alice.get("/v1/calls")).json()["calls"])

        await wait_until(returned)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert held.cancelled.is_set()
    assert [call["status"] for call in (await alice.get("/v1/calls")).json()["calls"]] == ["working"]


@pytest.mark.parametrize(("status", "error"), [(401, ReportFailed), (403, ReportRejected)])
async def test_a_report_is_repeated_after_a_key_was_not_accepted_and_given_up_without_a_permission(
    status: int, error: type[Exception]
) -> None:
    """A key is unknown to a service that was started with a wrong database, until its operator notices it."""
    refusal = httpx.Response(status, json={}, headers={"content-type": "application/problem+json"})
    backend = ServiceBackend(PUBLIC_URL, api_key="rbk_1", transport=httpx.MockTransport(lambda _: refusal))
    async with backend.open_sender() as send:
        with pytest.raises(error):
            await send({"key": "k", "upstream": UPSTREAM_NAME, "tool": "build_report"})
