"""Tools that are configured as `task_only`; and a client without the header for proxies."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import JsonRpcErrorResponse, ModernClient, legacy_session
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

CALL: Final[dict[str, Any]] = {"name": "echo", "arguments": {}}


@pytest.fixture(scope="module")
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
async def url(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with serving(ControlledUpstream().app()) as server:
        config = replace(make_http_config(server.url), task_only_tools=frozenset({"echo"}))
        async with (
            running_application(module_path_factory.mktemp("task-only"), config, auth="off") as ringback,
            serving(ringback.app.api) as near,
        ):
            yield f"{near.url}/stage"


@pytest.mark.must("M02")
async def test_a_client_without_tasks_gets_the_required_capability(http: httpx.AsyncClient, url: str) -> None:
    client = ModernClient(http, url)

    with pytest.raises(JsonRpcErrorResponse) as refused:
        await client.request("tools/call", CALL, declare={})
    served = await client.request("tools/call", CALL)

    assert (refused.value.code, refused.value.status) == (-32021, 400)
    assert refused.value.data == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    assert served["resultType"] == "complete"


@pytest.mark.must("L02")
async def test_a_legacy_session_sees_task_only_tools_and_must_send_a_task(http: httpx.AsyncClient, url: str) -> None:
    async with legacy_session(http, url) as session:
        listed = (await session.request("tools/list", {}))["tools"]
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("tools/call", CALL)
        created = await session.request("tools/call", {**CALL, "task": {}})

    support = {tool["name"]: tool["execution"]["taskSupport"] for tool in listed if "execution" in tool}
    assert (support["echo"], support["hold"]) == ("required", "optional")
    assert refused.value.code == -32601
    assert created["task"]["taskId"].startswith("call_")
