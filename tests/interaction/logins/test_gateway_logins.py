"""MCP clients whose call waits for a login: URL elicitation in both eras, the URL in words, tasks, and `ringback_login`."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.api_server import serving_api
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import (
    TASKS_DECLARED,
    Json,
    JsonRpcErrorResponse,
    LegacyClientSession,
    ModernClient,
    legacy_session,
)
from tests.support.protected_upstream import LOGIN_URL, ProtectedService, running_protected
from tests.support.upstreams import ControlledUpstream

URL_ELICITATION: Final[Json] = {"elicitation": {"url": {}}}
ECHO: Final[Json] = {"name": "echo", "arguments": {"n": 1}}
ACCEPTED: Final[Json] = {"ringback/login": {"action": "accept"}}
LONG_WAIT_SECONDS: Final = 45.0


@dataclass(slots=True)
class Gateway:
    protected: ProtectedService
    stage: ControlledUpstream
    http: httpx.AsyncClient
    url: str

    def make_modern_client(self, path: str = "/mcp/stage") -> ModernClient:
        return ModernClient(self.http, self.url + path)

    def open_legacy_session(
        self, capabilities: Json, path: str = "/mcp/stage"
    ) -> AbstractAsyncContextManager[LegacyClientSession]:
        return legacy_session(self.http, self.url + path, capabilities=capabilities)

    async def wait_until_refused(self) -> None:
        async def has_failed() -> bool:
            upstreams = (await self.http.get(f"{self.url}/v1/upstreams")).json()["upstreams"]
            return upstreams[0]["last_error"] == "login_required"

        await wait_until(has_failed)


@asynccontextmanager
async def running_gateway(folder: Path, *, wait_seconds: float) -> AsyncGenerator[Gateway]:
    stage = ControlledUpstream()
    async with (
        running_protected(folder, stage.app(), auth="off", inline_wait_seconds=wait_seconds) as protected,
        serving_api(protected.ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        gateway = Gateway(protected, stage, http, url)
        await gateway.wait_until_refused()
        yield gateway


@pytest.fixture
async def long_wait(tmp_path: Path) -> AsyncGenerator[Gateway]:
    """Responses wait longer than a login takes."""
    async with running_gateway(tmp_path, wait_seconds=LONG_WAIT_SECONDS) as gateway:
        yield gateway


@pytest.fixture
async def short_wait(tmp_path: Path) -> AsyncGenerator[Gateway]:
    """Responses wait for nothing."""
    async with running_gateway(tmp_path, wait_seconds=0.05) as gateway:
        yield gateway


def read_text(result: Json) -> str:
    return result["content"][0]["text"]


async def test_a_modern_client_gets_the_url_and_its_retry_waits_for_the_login(long_wait: Gateway) -> None:
    client = long_wait.make_modern_client()
    asked = await client.request("tools/call", ECHO, declare=URL_ELICITATION)
    request = asked["inputRequests"]["ringback/login"]
    assert (asked["resultType"], request["params"]["mode"], request["params"]["url"]) == (
        "input_required",
        "url",
        LOGIN_URL,
    )
    assert "elicitationId" not in request["params"], "2026-07-28 has removed it"

    again = {**ECHO, "requestState": asked["requestState"], "inputResponses": ACCEPTED}
    async with client.open_request("tools/call", again, declare=URL_ELICITATION) as frames:
        await long_wait.protected.sign_in()
        assert read_text(await frames.read_response()) == '{"n": 1}'
    assert len(long_wait.stage.calls) == 1


async def test_a_modern_client_that_retries_before_the_login_gets_the_url_in_words(short_wait: Gateway) -> None:
    patient_client = short_wait.make_modern_client(f"/mcp/stage?wait={LONG_WAIT_SECONDS:.0f}")
    asked = await patient_client.request("tools/call", ECHO, declare=URL_ELICITATION)
    again = {**ECHO, "requestState": asked["requestState"], "inputResponses": ACCEPTED}
    pending = await short_wait.make_modern_client().request("tools/call", again, declare=URL_ELICITATION)

    assert pending["resultType"] == "complete"
    assert LOGIN_URL in read_text(pending)


async def test_a_modern_client_that_declines_gets_the_end_of_the_call(long_wait: Gateway) -> None:
    client = long_wait.make_modern_client()
    asked = await client.request("tools/call", ECHO, declare=URL_ELICITATION)
    declined = {"ringback/login": {"action": "decline"}}
    with pytest.raises(JsonRpcErrorResponse, match="refused to sign in to upstream 'stage'"):
        await client.request(
            "tools/call",
            {**ECHO, "requestState": asked["requestState"], "inputResponses": declined},
            declare=URL_ELICITATION,
        )
    assert not long_wait.stage.calls


async def test_a_legacy_client_is_asked_once_and_notified_when_the_login_is_done(long_wait: Gateway) -> None:
    async with (
        long_wait.open_legacy_session(URL_ELICITATION) as session,
        session.open_request("tools/call", ECHO) as frames,
    ):
        asked = await frames.read_message("elicitation/create")
        assert (asked["params"]["mode"], asked["params"]["url"]) == ("url", LOGIN_URL)
        await session.send_response(asked, {"action": "accept"})
        await long_wait.protected.sign_in()
        received: list[Json] = []
        assert read_text(await frames.read_response(received)) == '{"n": 1}'

    methods = [each["method"] for each in received if each["method"].startswith(("elicitation", "notifications/elic"))]
    assert methods == ["notifications/elicitation/complete"]
    (done,) = [each for each in received if each["method"] == methods[0]]
    assert done["params"] == {"elicitationId": asked["params"]["elicitationId"]}


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
async def test_a_client_without_url_elicitation_gets_the_url_in_words(long_wait: Gateway, capabilities: Json) -> None:
    modern = await long_wait.make_modern_client().request("tools/call", ECHO, declare=capabilities)
    async with long_wait.open_legacy_session(capabilities) as session:
        legacy = await session.request("tools/call", ECHO)

    for pending in (modern, legacy):
        assert f"Ask the user to open {LOGIN_URL}" in read_text(pending)
        assert "ask the operator of Ringback" in read_text(pending)
        assert "API key" not in read_text(pending)
        assert "run `ringback upstreams login stage` in a terminal" in read_text(pending)
        assert "The call goes on by itself" in pending["structuredContent"]["ringback_pending"]["next_step"]
        assert pending["structuredContent"]["ringback_pending"]["status"] == "input_required"


async def test_a_task_asks_for_the_login_and_goes_on_after_it(short_wait: Gateway) -> None:
    client = short_wait.make_modern_client()
    created = await client.request("tools/call", ECHO, declare={**TASKS_DECLARED})
    reference = {"taskId": created["taskId"]}

    async def get_task() -> Json:
        return await client.request("tasks/get", reference)

    async def awaits_input() -> bool:
        return (await get_task())["status"] == "input_required"

    await wait_until(awaits_input)
    task = await get_task()
    assert task["inputRequests"]["ringback/login"]["params"]["url"] == LOGIN_URL
    assert LOGIN_URL in task["statusMessage"]
    assert "ringback upstreams login stage" in task["statusMessage"]
    await client.request("tasks/update", {**reference, "inputResponses": ACCEPTED})
    assert await awaits_input(), "only the login lets the call go on"

    await short_wait.protected.sign_in()

    async def is_completed() -> bool:
        return (await get_task())["status"] == "completed"

    await wait_until(is_completed)


@pytest.mark.parametrize("path", ["/mcp/stage", "/mcp"])
async def test_the_list_has_the_login_tool_until_the_login(short_wait: Gateway, path: str) -> None:
    client = short_wait.make_modern_client(path)

    async def list_names() -> set[str]:
        return {tool["name"] for tool in (await client.request("tools/list", {}))["tools"]}

    assert "ringback_login" in await list_names()
    login = (await client.request("tools/call", {"name": "ringback_login", "arguments": {}}))["structuredContent"]
    assert (login["upstream"], login["state"], login["login_url"]) == ("stage", "login_required", LOGIN_URL)
    assert "ringback upstreams login stage" in login["next_step"]

    await short_wait.protected.sign_in()
    echo = "echo" if path == "/mcp/stage" else "stage__echo"

    async def lists_tools() -> bool:
        names = await list_names()
        return echo in names and "ringback_login" not in names

    await wait_until(lists_tools)
    again = await client.request("tools/call", {"name": "ringback_login", "arguments": {"upstream": "stage"}})
    assert again["structuredContent"]["state"] == "ready"


async def test_an_expired_login_is_shown_by_the_login_tool_and_the_list_of_upstreams(short_wait: Gateway) -> None:
    """The connection is open, and has no error, when the provider revokes the tokens."""
    await short_wait.protected.sign_in()
    client = short_wait.make_modern_client()

    async def read_upstream() -> Json:
        return (await short_wait.http.get(f"{short_wait.url}/v1/upstreams")).json()["upstreams"][0]

    async def is_signed_in() -> bool:
        return (await read_upstream())["state"] == "ready"

    await wait_until(is_signed_in)
    short_wait.protected.check.accepted.clear()
    await client.request("tools/call", ECHO)

    async def has_expired() -> bool:
        return (await read_upstream())["login"]["state"] == "expired"

    await wait_until(has_expired)
    for arguments in ({}, {"upstream": "stage"}):
        asked = await client.request("tools/call", {"name": "ringback_login", "arguments": arguments})
        assert asked["structuredContent"]["state"] == "login_required"
        assert LOGIN_URL in read_text(asked)
    assert "ringback upstreams login stage" in (await read_upstream())["advice"]
    assert "ringback_login" in {tool["name"] for tool in (await client.request("tools/list", {}))["tools"]}


async def test_a_client_that_follows_the_list_gets_its_change_after_the_login(short_wait: Gateway) -> None:
    async with short_wait.make_modern_client().open_subscription({"toolsListChanged": True}) as frames:
        await frames.read_message()
        await short_wait.protected.sign_in()
        await frames.read_message("notifications/tools/list_changed")
