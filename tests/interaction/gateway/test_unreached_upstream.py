"""An upstream that was never reached: its clients see what they have called there, and why it has not started."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError

from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config

pytestmark = pytest.mark.requirement("R15")


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    away = make_http_config("http://127.0.0.1:9/mcp", name="away")
    async with (
        running_application(tmp_path, away, auth="off", inline_wait_seconds=0.05) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):

        async def has_failed() -> bool:
            (upstream,) = (await http.get(f"{url}/v1/upstreams")).json()["upstreams"]
            return upstream["state"] == "failing"

        await wait_until(has_failed)
        yield f"{url}/mcp/away"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdk_client_shows_the_pending_result_and_those_of_the_built_in_tools(url: str, mode: Any) -> None:
    async with Client(url, mode=mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.list_tools()

        pending = await client.call_tool("build", {"at": "once"})
        listed = await client.call_tool("ringback_list_calls", {})
        tools = (await client.list_tools()).tools

    assert refused.value.error.message == (
        "Upstream 'away' cannot be reached now (cannot_connect). Try again in a moment; if that fails, tell the user."
    )
    text = pending.content[0].model_dump()["text"]
    assert "The tool 'build' of 'away' has not started. 'away' cannot be reached now (cannot connect)" in text
    content: Any = listed.structured_content
    (call,) = content["calls"]
    assert call["call_id"] in text
    assert [tool.name for tool in tools if not tool.name.startswith("ringback_")] == ["build"]


async def test_the_pending_result_and_the_built_in_tools_say_that_an_operator_has_paused_the_upstream(url: str) -> None:
    async with Client(url, mode="legacy") as client, httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        await http.post(f"{url.removesuffix('/mcp/away')}/v1/upstreams/away/pause")
        pending = await client.call_tool("build", {"at": "once"})
        fields: Any = pending.structured_content
        (shown,) = fields.values()
        polled = await client.call_tool("ringback_get_call", {"call_id": shown["call_id"]})
        resource = await client.read_resource(shown["resource_uri"])
        await http.post(f"{url.removesuffix('/mcp/away')}/v1/upstreams/away/resume")
        resumed = await client.call_tool("ringback_get_call", {"call_id": shown["call_id"]})

    sentence = "The call waits because an operator has paused its upstream, away"
    text = pending.content[0].model_dump()["text"]
    assert text.startswith(f"The tool 'build' of 'away' has not started. {sentence} (call_id")
    for each in (shown["next_step"], str(polled.content), str(polled.structured_content), str(resource.contents)):
        assert f"{sentence}." in each
    assert sentence not in str(resumed)
