"""A user's FastMCP server with callbacks: real servers and clients, in process and over HTTP."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import fastmcp
import httpx
import pytest
from fastmcp import Context, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp_tasks import TasksExtension
from fastmcp_tasks import call_tool_task as _call_tool_task  # pyright: ignore[reportUnknownVariableType] - it is generic
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.server.mcpserver import MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestParams, ElicitResult, InputRequiredResult

import ringback.extension
from ringback.client import RingbackClient
from ringback.extension.fastmcp import Callbacks
from tests.support.extension_servers import (
    ELICITATION_SCHEMA,
    LOCAL_RECEIVER_SETTINGS,
    SECRET,
    UPSTREAM_NAME,
    HeldTool,
    callback_meta,
    verify_callback,
)
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.upstreams import serving

pytestmark = pytest.mark.requirement("R29")

EXAMPLE: Final = Path(__file__).parents[3] / "scripts" / "examples" / "fastmcp_server.py"


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        yield receiver


def make_callbacks(folder: Path, **options: Any) -> Callbacks:
    return Callbacks.embedded(
        upstream=UPSTREAM_NAME,
        database_url=f"sqlite:///{folder / 'calls.db'}",
        settings=LOCAL_RECEIVER_SETTINGS,
        drain_seconds=1.0,
        **options,
    )


def make_server(*extensions: Any, held: HeldTool | None = None) -> FastMCP[Any]:
    held = held or HeldTool()
    server: FastMCP[Any] = FastMCP("reports")
    for extension in extensions:
        server.add_extension(extension)

    @server.tool
    async def build_report(about: str) -> dict[str, str]:
        return {"title": f"a report about {about}"}

    @server.tool
    async def build_slowly(ctx: Context) -> str:
        await held()
        await ctx.report_progress(1, 1)
        return "a slow report"

    @server.tool
    async def fail() -> str:
        raise ToolError("no paper")

    @server.tool
    async def peek(ctx: Context) -> str:
        """Return the tool's view of its request."""
        assert ctx.request_context is not None
        return json.dumps([ctx.request_context.meta], default=str)

    @server.tool
    async def delegate(ctx: Context) -> str:
        """Call another tool of this server."""
        result = await ctx.fastmcp.call_tool("build_report", {"about": "rain"})
        return str(result.structured_content)

    @server.tool
    async def ask(ctx: Context) -> Any:
        if ctx.input_responses is None:
            question = ElicitRequestFormParams(message="Which year?", requested_schema=ELICITATION_SCHEMA)
            return InputRequiredResult(input_requests={"year": ElicitRequest(params=question)}, request_state="asked")
        answer = ctx.input_responses["year"]
        assert isinstance(answer, ElicitResult)
        return f"{ctx.request_state}: a report about {(answer.content or {})['year']}"

    return server


@asynccontextmanager
async def http_client(server: FastMCP[Any], **options: Any) -> AsyncGenerator[Client]:
    app = server.http_app()
    async with app.router.lifespan_context(app), serving(app) as http, Client(http.url, **options) as client:
        yield client


# -- the loop ----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R19")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_over_http_that_requests_a_callback_gets_it(tmp_path: Path, receiver: Receiver, mode: Any) -> None:
    async with http_client(make_server(make_callbacks(tmp_path)), mode=mode) as client:
        meta = callback_meta(receiver, include_result=True)
        result = await client.call_tool("build_report", {"about": "rain"}, meta=meta)
        (callback,) = await receiver.wait_for_requests(1)

    data = verify_callback(callback)
    assert result.structured_content == {"title": "a report about rain"}
    assert data["result"]["structuredContent"] == {"title": "a report about rain"}
    assert (data["upstream"], data["tool"], data["outcome"]) == (UPSTREAM_NAME, "build_report", "result")
    assert (data["correlation_id"], data["client_session_id"]) == ("c1", "s1")
    assert (result.meta or {})["ringback/callId"] == data["call_id"]


async def test_a_call_in_process_that_requests_a_callback_gets_it(tmp_path: Path, receiver: Receiver) -> None:
    async with fastmcp.Client(make_server(make_callbacks(tmp_path))) as client:
        result = await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
        (callback,) = await receiver.wait_for_requests(1)

    assert verify_callback(callback)["outcome"] == "result"
    assert "ringback/callId" in (result.meta or {})


@pytest.mark.requirement("R33")
async def test_a_failing_tool_sends_a_tool_error(tmp_path: Path, receiver: Receiver) -> None:
    async with http_client(make_server(make_callbacks(tmp_path))) as client:
        failed = await client.call_tool("fail", {}, meta=callback_meta(receiver))
        (callback,) = await receiver.wait_for_requests(1)

    data = verify_callback(callback)
    assert failed.is_error
    assert (data["status"], data["outcome"]) == ("completed", "tool_error")
    assert (failed.meta or {})["ringback/callId"] == data["call_id"]


async def test_marked_tools_send_a_callback_to_the_default_receiver_and_only_when_the_client_calls_them(
    tmp_path: Path, receiver: Receiver
) -> None:
    callbacks = make_callbacks(
        tmp_path, tools={"build_report"}, callback={"url": receiver.url(), "secret": SECRET, "retries": "minutes"}
    )
    async with http_client(make_server(callbacks)) as client:
        delegated = await client.call_tool("delegate", {})
        marked = await client.call_tool("build_report", {"about": "rain"})
        (callback,) = await receiver.wait_for_requests(1)

    assert (marked.meta or {})["ringback/callId"] == verify_callback(callback)["call_id"]
    assert "ringback/callId" not in (delegated.meta or {})


@pytest.mark.requirement("R16")
async def test_a_client_that_disconnects_gets_a_callback(tmp_path: Path, receiver: Receiver) -> None:
    held = HeldTool()
    async with http_client(make_server(make_callbacks(tmp_path), held=held)) as client:
        meta = callback_meta(receiver, include_result=True)
        calling = asyncio.create_task(client.call_tool("build_slowly", {}, meta=meta))
        await held.entered.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        held.release.set()
        data = verify_callback((await receiver.wait_for_requests(1))[0])

    assert data["result"]["content"] == [{"type": "text", "text": "a slow report"}]
    assert not held.cancelled.is_set()


async def test_a_call_with_questions_is_one_call(tmp_path: Path, receiver: Receiver) -> None:
    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"year": 2026})

    async with http_client(make_server(make_callbacks(tmp_path)), elicitation_callback=answer) as client:
        result = await client.call_tool("ask", {}, meta=callback_meta(receiver))
        data = verify_callback((await receiver.wait_for_requests(1))[0])

    assert getattr(result.content[0], "text", "") == "asked: a report about 2026"
    assert data["call_id"] == (result.meta or {})["ringback/callId"]
    assert len(receiver.requests) == 1


async def test_the_tool_does_not_see_the_callback_and_its_secret(tmp_path: Path, receiver: Receiver) -> None:
    async with http_client(make_server(make_callbacks(tmp_path))) as client:
        observed = await client.call_tool("peek", {}, meta=callback_meta(receiver))

    text = getattr(observed.content[0], "text", "")
    assert "ringback/correlationId" in text
    assert "ringback/callback" not in text


# -- what is not promised ----------------------------------------------------------------------------------------------------


async def test_a_response_names_no_call_without_listeners(tmp_path: Path) -> None:
    async with http_client(make_server(make_callbacks(tmp_path))) as client:
        result = await client.call_tool("build_report", {"about": "rain"})

    assert not any(key.startswith("ringback/") for key in result.meta or {})


async def test_a_call_that_becomes_a_task_is_neither_reported_nor_promised(tmp_path: Path, receiver: Receiver) -> None:
    callbacks = make_callbacks(tmp_path, callback={"url": receiver.url(), "secret": SECRET})
    server = make_server(callbacks, TasksExtension(url="memory://"))

    @server.tool(task=True)
    async def build_in_background() -> str:
        return "built"

    async with fastmcp.Client(server) as client:
        task = await _call_tool_task(client, "build_in_background", {})
        assert (await task.result()).data == "built"
        reported = await client.call_tool("build_report", {"about": "rain"})
        (callback,) = await receiver.wait_for_requests(1)

    assert verify_callback(callback)["call_id"] == (reported.meta or {})["ringback/callId"]
    assert verify_callback(callback)["tool"] == "build_report"


async def test_callbacks_of_a_mounted_server_fail_its_calls_and_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(make_server(make_callbacks(tmp_path)))
    async with fastmcp.Client(outer) as client:
        with pytest.raises(ToolError):
            await client.call_tool("build_report", {"about": "rain"})
    assert "to the server that you run" in caplog.text


async def test_each_framework_s_extension_names_the_other_one_in_the_wrong_server(tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path / 'calls.db'}"
    of_the_sdk = ringback.extension.Callbacks.embedded(upstream=UPSTREAM_NAME, database_url=database_url)

    with pytest.raises(TypeError, match=r"ringback\.extension\.fastmcp"):
        FastMCP("reports").add_extension(of_the_sdk)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"import Callbacks from ringback\.extension\."):
        MCPServer[Any]("reports", extensions=[make_callbacks(tmp_path)])  # pyright: ignore[reportArgumentType]


# -- the first try -----------------------------------------------------------------------------------------------------------


async def test_a_first_try_needs_no_database_no_key_and_no_public_receiver(receiver: Receiver) -> None:
    callbacks = Callbacks.embedded(upstream=UPSTREAM_NAME, dev=True)
    server = make_server(callbacks)
    app = server.http_app()
    callbacks.mount(app)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        http = await stack.enter_async_context(serving(app))
        web = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{http.port}"))
        webhook = await web.post("/ringback/v1/webhooks", json={"url": receiver.url(), "secret": SECRET})
        client = await stack.enter_async_context(Client(http.url))
        result = await client.call_tool("build_report", {"about": "rain"})
        data = verify_callback((await receiver.wait_for_requests(1))[0])
        async with RingbackClient(f"http://127.0.0.1:{http.port}/ringback") as ringback:
            resumed = await ringback.resume(data["resume_token"])
            events = ringback.stream_events()
            followed = await anext(events)
            await events.aclose()

    assert webhook.status_code == 201
    assert data["call_id"] == (result.meta or {})["ringback/callId"]
    assert resumed.result is not None
    assert resumed.result["structuredContent"] == {"title": "a report about rain"}
    assert (followed.name, followed.data["call_id"]) == ("call.finished", data["call_id"])
    assert data["resume_url"] == "http://127.0.0.1:8000/ringback/v1/resume"


async def test_a_first_try_names_the_port_that_is_given_and_warns_of_another_one(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = Callbacks.embedded(upstream=UPSTREAM_NAME, dev=True, port=8765)
    server = make_server(callbacks)
    app = server.http_app()
    callbacks.mount(app)
    async with (
        app.router.lifespan_context(app),
        serving(app) as http,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{http.port}") as web,
    ):
        for _ in range(2):
            assert (await web.get("/ringback/healthz")).status_code == 200
        async with Client(http.url) as client:
            await client.call_tool("build_report", {"about": "rain"}, meta=callback_meta(receiver))
        data = verify_callback((await receiver.wait_for_requests(1))[0])

    assert data["resume_url"] == "http://127.0.0.1:8765/ringback/v1/resume"
    assert caplog.text.count(f"dev=True, port={http.port}") == 1
    assert caplog.text.count("in a temporary file, because of dev=True") == 1


def test_a_port_is_only_for_a_first_try(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="public_url, which has the port"):
        Callbacks.embedded(upstream=UPSTREAM_NAME, database_url=f"sqlite:///{tmp_path / 'calls.db'}", port=9000)


@pytest.mark.parametrize(
    ("address", "status"),
    [("192.0.2.1", 403), ("::ffff:192.0.2.1", 403), ("::ffff:127.0.0.1", 200), ("::1", 200), ("testclient", 403)],
)
async def test_the_api_of_a_first_try_answers_this_machine_only(address: str, status: int) -> None:
    callbacks = Callbacks.embedded(upstream=UPSTREAM_NAME, dev=True)
    transport = httpx.ASGITransport(callbacks.api, client=(address, 5000))
    async with callbacks, httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as web:
        assert (await web.get("/v1/calls")).status_code == status


async def test_the_example_calls_back_over_stdio(receiver: Receiver) -> None:
    transport = StdioTransport(sys.executable, [str(EXAMPLE), "stdio"], keep_alive=False)
    async with fastmcp.Client(transport) as client:
        arguments = {"about": "rain", "minutes": 0}
        result = await client.call_tool("build_report", arguments, meta=callback_meta(receiver, include_result=True))
        data = verify_callback((await receiver.wait_for_requests(1))[0])

    assert data["result"]["content"] == [{"type": "text", "text": "a report about rain"}]
    assert data["call_id"] == (result.meta or {})["ringback/callId"]
    assert "resume_url" not in data
