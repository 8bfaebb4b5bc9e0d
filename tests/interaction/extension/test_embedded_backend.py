"""A user's MCP server with an embedded Ringback: real server, client, receiver and file."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult
from starlette.applications import Starlette
from starlette.routing import Mount

from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import DEFAULT_SCOPES
from ringback.extension import Callbacks
from ringback.service_database import open_api_keys
from ringback.services.calls.reports import CallReports
from ringback.settings import load_settings
from tests.support.extension_servers import (
    LOCAL_RECEIVER_SETTINGS,
    SECRET,
    UPSTREAM_NAME,
    FastClock,
    HeldTool,
    callback_meta,
    make_extension_server,
    verify_callback,
)
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.upstreams import serving

pytestmark = pytest.mark.requirement("R29")

PUBLIC_URL = "https://reports.example/ringback"


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        yield receiver


def running_embedded_server(folder: Path, **options: Any) -> Callbacks:
    database_url = f"sqlite:///{folder / 'calls.db'}"
    return Callbacks.embedded(
        upstream=UPSTREAM_NAME,
        database_url=database_url,
        public_url=PUBLIC_URL,
        settings=LOCAL_RECEIVER_SETTINGS,
        drain_seconds=1.0,
        **options,
    )


@asynccontextmanager
async def http_client(callbacks: Callbacks, held: HeldTool | None = None, **client: Any) -> AsyncGenerator[Client]:
    app = make_extension_server(callbacks, held).streamable_http_app()
    async with callbacks, serving(app) as server, Client(server.url, **client) as connected:
        yield connected


def result_text(result: CallToolResult) -> str:
    (block,) = result.content
    return str(getattr(block, "text", ""))


# -- the loop ----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R19")
async def test_a_call_that_requests_a_callback_gets_it_and_its_response(tmp_path: Path, receiver: Receiver) -> None:
    async with http_client(running_embedded_server(tmp_path)) as client:
        result = await client.call_tool(
            "build_report", {"about": "rain"}, meta=callback_meta(receiver, include_result=True)
        )
        (callback,) = await receiver.wait_for_requests(1)

    assert result_text(result) == "a report about rain"
    assert result.meta is not None
    data = verify_callback(callback)
    assert data["result"]["content"] == [{"type": "text", "text": "a report about rain"}]
    assert (data["upstream"], data["tool"], data["outcome"]) == (UPSTREAM_NAME, "build_report", "result")
    assert (data["correlation_id"], data["client_session_id"]) == ("c1", "s1")
    assert {name: result.meta[f"ringback/{name}"] for name in ("callId", "correlationId", "clientSessionId")} == {
        "callId": data["call_id"],
        "correlationId": "c1",
        "clientSessionId": "s1",
    }


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_extension_works_in_both_eras_and_in_process(tmp_path: Path, receiver: Receiver, mode: Any) -> None:
    callbacks = running_embedded_server(tmp_path)
    async with Client(make_extension_server(callbacks, lifespan=callbacks.lifespan), mode=mode) as client:
        result = await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
        (callback,) = await receiver.wait_for_requests(1)
    assert result_text(result) == "a report about rain"
    assert verify_callback(callback)["outcome"] == "result"


@pytest.mark.requirement("R33")
async def test_every_outcome_is_sent_as_it_was(tmp_path: Path, receiver: Receiver) -> None:
    async with http_client(running_embedded_server(tmp_path)) as client:
        failed = await client.call_tool("fail", {}, meta=callback_meta(receiver))
        with pytest.raises(MCPError, match="not today"):
            await client.call_tool("refuse", {}, meta=callback_meta(receiver))
        callbacks = [verify_callback(callback) for callback in await receiver.wait_for_requests(2)]

    assert failed.is_error
    assert {data["tool"]: (data["status"], data["outcome"]) for data in callbacks} == {
        "fail": ("completed", "tool_error"),
        "refuse": ("failed", "upstream_error"),
    }


async def test_calls_of_marked_tools_send_a_callback_to_the_default_receiver(
    tmp_path: Path, receiver: Receiver
) -> None:
    callbacks = running_embedded_server(
        tmp_path, tools={"build_report"}, callback={"url": receiver.url(), "secret": SECRET, "retries": "minutes"}
    )
    async with http_client(callbacks) as client:
        unmarked = await client.call_tool("peek", {})
        marked = await client.call_tool("build_report", {"about": "rain"})
        (callback,) = await receiver.wait_for_requests(1)
    assert verify_callback(callback)["tool"] == "build_report"
    assert "ringback/callId" in (marked.meta or {})
    assert "ringback/callId" not in (unmarked.meta or {})


async def test_a_receiver_resumes_at_the_server_itself(tmp_path: Path, receiver: Receiver) -> None:
    callbacks = running_embedded_server(tmp_path)
    app = Starlette(routes=[Mount("/ringback", callbacks.api)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://reports.example") as web:
        assert (await web.get("/ringback/healthz")).status_code == 503
        async with http_client(callbacks) as client:
            await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
            data = verify_callback((await receiver.wait_for_requests(1))[0])
            assert data["resume_url"] == "https://reports.example/ringback/v1/resume"
            token = {"resume_token": data["resume_token"]}
            assert (await web.post(data["resume_url"], json=token)).status_code == 401
            key = {"Authorization": f"Bearer {await read_server_key(tmp_path)}"}
            resumed = await web.post(data["resume_url"], json=token, headers=key)
    assert resumed.json()["result"]["content"] == [{"type": "text", "text": "a report about rain"}]


async def read_server_key(folder: Path) -> str:
    async with open_api_keys(load_settings(database_url=f"sqlite:///{folder / 'calls.db'}")) as keys:
        _, text = await keys.create_key(UPSTREAM_NAME, name="receiver", scopes=DEFAULT_SCOPES, upstreams=None)
        return text


# -- hanging up, cancelling, asking ------------------------------------------------------------------------------------------


@pytest.mark.requirement("R16")
async def test_a_client_that_disconnects_gets_a_callback(tmp_path: Path, receiver: Receiver) -> None:
    held = HeldTool()
    async with http_client(running_embedded_server(tmp_path), held) as client:
        calling = asyncio.create_task(
            client.call_tool("build_slowly", {}, meta=callback_meta(receiver, include_result=True))
        )
        await held.entered.wait()
        calling.cancel()
        await held.called_off.wait()
        held.release.set()
        data = verify_callback((await receiver.wait_for_requests(1))[0])
    assert data["result"]["content"] == [{"type": "text", "text": "a slow report"}]
    assert not held.cancelled.is_set()


async def test_a_call_whose_client_sends_a_cancellation_is_cancelled(tmp_path: Path, receiver: Receiver) -> None:
    held = HeldTool()
    async with http_client(running_embedded_server(tmp_path), held, mode="legacy") as client:
        calling = asyncio.create_task(client.call_tool("build_slowly", {}, meta=callback_meta(receiver)))
        await held.entered.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        data = verify_callback((await receiver.wait_for_requests(1))[0])
    assert (data["status"], data["outcome"]) == ("cancelled", "cancelled")
    assert held.cancelled.is_set()


async def test_a_call_with_questions_is_one_call(tmp_path: Path, receiver: Receiver) -> None:
    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"year": 2026})

    async with http_client(running_embedded_server(tmp_path), elicitation_callback=answer) as client:
        result = await client.call_tool("ask", {}, meta=callback_meta(receiver))
        data = verify_callback((await receiver.wait_for_requests(1))[0])
    assert result_text(result) == "asked: a report about 2026"
    assert result.meta is not None
    assert data["call_id"] == result.meta["ringback/callId"]
    assert len(receiver.requests) == 1


# -- what is promised --------------------------------------------------------------------------------------------------------


async def test_only_the_receiver_learns_the_secret_of_a_callback(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="ringback"):
        async with http_client(running_embedded_server(tmp_path)) as client:
            observed = await client.call_tool("peek", {}, meta=callback_meta(receiver))
            await receiver.wait_for_requests(1)
    secret = SECRET.removeprefix("whsec_")
    assert "ringback/correlationId" in result_text(observed)
    assert "ringback/callback" not in result_text(observed)
    assert secret not in result_text(observed) + caplog.text
    assert secret.encode() not in _all_bytes(tmp_path)


def _all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize(
    ("meta", "says"),
    [
        ({"ringback/callback": {"url": "https://agent.example/"}}, "send a secret"),
        ({"ringback/callback": {"url": "https://10.0.0.1/", "secret": SECRET}}, "ringback/callback"),
        ({"ringback/callback": {"url": "https://agent.example/", "secret": "whsec_ABC"}}, "ringback/callback"),
        ({"ringback/callback": "https://agent.example/"}, "ringback/callback"),
        ({"ringback/correlationId": 7}, "ringback/correlationId"),
    ],
)
async def test_a_callback_that_cannot_be_promised_is_refused_before_the_tool_runs(
    tmp_path: Path, meta: Any, says: str
) -> None:
    held = HeldTool()
    async with http_client(running_embedded_server(tmp_path), held) as client:
        with pytest.raises(MCPError, match=says) as refusal:
            await client.call_tool("build_slowly", {}, meta=meta)
    assert refusal.value.code == -32602
    assert "ABC" not in str(refusal.value)
    assert not held.entered.is_set()


async def test_a_full_disk_delays_no_response_and_the_response_promises_no_callback(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, full = CallReports.record_report, asyncio.Event()
    full.set()

    async def unsteady(self: Any, *arguments: Any) -> Any:
        if full.is_set():
            raise StoreUnavailable("The disk is full.")
        return await report(self, *arguments)

    monkeypatch.setattr(CallReports, "record_report", unsteady)
    async with http_client(running_embedded_server(tmp_path, clock=FastClock())) as client:
        result = await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
        full.clear()
        data = verify_callback((await receiver.wait_for_requests(1))[0])
    assert result_text(result) == "a report about rain"
    assert "ringback/callId" not in (result.meta or {})
    assert data["outcome"] == "result"


async def test_calls_need_open_callbacks(tmp_path: Path) -> None:
    callbacks = running_embedded_server(tmp_path)
    async with Client(make_extension_server(callbacks)) as client:
        with pytest.raises(MCPError):
            await client.call_tool("build_report", {"about": "rain"})


async def test_callbacks_are_opened_once_at_a_time(tmp_path: Path) -> None:
    callbacks = running_embedded_server(tmp_path)
    async with callbacks:
        with pytest.raises(RuntimeError, match="already open"):
            await callbacks.__aenter__()
    async with callbacks:
        pass


def test_an_embedded_ringback_needs_a_file() -> None:
    with pytest.raises(StoreUnavailable, match="SQLite"):
        Callbacks.embedded(upstream=UPSTREAM_NAME, database_url="postgresql://db/calls", public_url=PUBLIC_URL)


async def test_the_extension_is_advertised(tmp_path: Path) -> None:
    async with http_client(running_embedded_server(tmp_path)) as client:
        assert "ringback/callbacks" in json.dumps(client.server_capabilities.model_dump(mode="json"))


# -- the API -----------------------------------------------------------------------------------------------------------------


async def test_callbacks_have_no_urls_while_the_api_is_not_mounted(tmp_path: Path, receiver: Receiver) -> None:
    async with http_client(running_embedded_server(tmp_path)) as client:
        await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
        data = verify_callback((await receiver.wait_for_requests(1))[0])

    assert {"resume_url", "mcp_url", "resource_uri"} & set(data) == set()
    assert data["outcome"] == "result"


async def test_mount_serves_the_api_at_the_path_of_the_public_url(tmp_path: Path, receiver: Receiver) -> None:
    callbacks = running_embedded_server(tmp_path)
    app = Starlette()
    callbacks.mount(app)
    async with (
        http_client(callbacks) as client,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://reports.example") as web,
    ):
        await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
        data = verify_callback((await receiver.wait_for_requests(1))[0])
        assert (await web.get("/ringback/healthz")).status_code == 200
        with pytest.raises(RuntimeError, match="before the server starts"):
            callbacks.mount(app)

    assert data["resume_url"] == f"{PUBLIC_URL}/v1/resume"


def test_an_api_without_a_url_of_its_own_is_not_mounted(tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path / 'calls.db'}"
    without_url = Callbacks.embedded(upstream=UPSTREAM_NAME, database_url=database_url)
    without_path = Callbacks.embedded(
        upstream=UPSTREAM_NAME, database_url=database_url, public_url="https://reports.example"
    )
    service = Callbacks.reporting("https://ringback.example", upstream=UPSTREAM_NAME)

    for callbacks, says in ((without_url, "public_url"), (without_path, "/ringback'"), (service, "nothing to mount")):
        with pytest.raises(ValueError, match=says):
            callbacks.mount(Starlette())


def test_an_embedded_ringback_without_a_file_is_only_for_a_first_try() -> None:
    with pytest.raises(ValueError, match="dev=True"):
        Callbacks.embedded(upstream=UPSTREAM_NAME)


async def test_a_call_without_listeners_is_not_named_in_the_response(tmp_path: Path) -> None:
    async with http_client(running_embedded_server(tmp_path)) as client:
        result = await client.call_tool("build_report", {"about": "rain"})

    assert "ringback/callId" not in (result.meta or {})
