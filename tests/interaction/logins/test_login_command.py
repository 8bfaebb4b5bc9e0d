"""The whole loop as a user has it: `ringback serve`, a call, a callback, `ringback upstreams login` and a browser."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestURLParams, ElicitResult

from ringback.client import Call, RingbackClient
from tests.support.application import SECRET, CallbackReceiver, serving_callbacks
from tests.support.limits import WAIT_SECONDS
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.browser import Browser
from tests.support.login_peers.login_service import LoginService
from tests.support.login_peers.peer import READ, WRITE, LoginPeer
from tests.support.login_peers.sdk_peer import serving_sdk_peer
from tests.support.task_upstream import TaskUpstream


@dataclass(slots=True)
class Stage:
    peer: LoginPeer
    service: LoginService
    phone: CallbackReceiver
    key: str

    async def start_call(self, tool: str, correlation_id: str) -> Call:
        async with RingbackClient(self.service.url, api_key=self.key) as client:
            started = await client.start_call(
                "files", tool, {}, callback={"url": self.phone.url, "secret": SECRET}, correlation_id=correlation_id
            )
        return started.call

    async def wait_for_callback(self, call: Call, name: str) -> None:
        callback = await self.phone.wait_for_callback(call.correlation_id or "")
        assert (callback.name, callback.call_id) == (name, call.id)

    async def read_text(self, call: Call) -> str:
        async with RingbackClient(self.service.url, api_key=self.key) as client:
            return str((await client.result(call.id))["content"][0]["text"])

    async def sign_in(self, *, account: str) -> None:
        """Run the command, and open its URL in the browser of this machine."""
        async with Browser(account=account) as browser, self.service.signing_in(self.key) as (_, url):
            page = await browser.visit(url)
        assert "Go back to the terminal" in page.text


@asynccontextmanager
async def serving_stage(folder: Path, peer: LoginPeer) -> AsyncGenerator[Stage]:
    service = LoginService(folder=folder, upstream={"url": peer.url})
    key = await service.create_key("operator", "admin", "calls", "read", "webhooks")
    async with serving_callbacks() as phone:
        yield Stage(peer, service, phone, key)
    assert [line for line in service.output for secret in {*peer.secrets, key} if secret in line] == []


async def test_the_loop_with_a_browser_with_a_pasted_address_and_with_the_page(tmp_path: Path) -> None:
    async with serving_sdk_peer(AccountServer().app) as peer, serving_stage(tmp_path, peer) as stage:
        peer.tool_scopes["deploy"] = WRITE
        async with stage.service.running():
            first = await stage.start_call("whoami", "browser")
            await stage.wait_for_callback(first, "call.input_required")
            await stage.sign_in(account="ada")
            await stage.wait_for_callback(first, "call.finished")
            assert await stage.read_text(first) == "ada"

            peer.revoke_all_tokens()
            second = await stage.start_call("whoami", "pasted")
            await stage.wait_for_callback(second, "call.input_required")
            async with Browser(account="bob") as browser, stage.service.signing_in(stage.key) as (command, url):
                command.stdin.write(f"nonsense\n{await browser.approve(url)}\n".encode())
            await stage.wait_for_callback(second, "call.finished")
            assert await stage.read_text(second) == "bob"

            third = await stage.start_call("deploy", "page")
            await stage.wait_for_callback(third, "call.input_required")
            async with Browser(account="eve", answers={"key": stage.key}) as browser:
                page = await browser.visit(await find_login_url(stage, third))
            assert "You are signed in to files" in page.text
            await stage.wait_for_callback(third, "call.finished")
            assert await stage.read_text(third) == "eve"
        assert set(list(peer.access_tokens.values())[-1].scopes) == {READ, WRITE}


async def find_login_url(stage: Stage, call: Call) -> str:
    async with RingbackClient(stage.service.url, api_key=stage.key) as client:
        (request,) = (await client.call(call.id)).input_requests.values()
    return str(request.params["url"])


async def test_a_call_in_the_middle_of_a_task_survives_kills_before_and_after_the_login(tmp_path: Path) -> None:
    tasks = TaskUpstream()
    async with (
        asyncio.timeout(3 * WAIT_SECONDS),
        serving_sdk_peer(tasks.app) as peer,
        serving_stage(tmp_path, peer) as stage,
    ):
        async with stage.service.running():
            call = await stage.start_call("work", "task")
            await stage.wait_for_callback(call, "call.input_required")
        async with stage.service.running():
            await stage.sign_in(account="ada")
            task = await tasks.wait_for_task(1)
            await tasks.wait_until(lambda: tasks.count_requests("tasks/get") > 0)  # the handle is stored
        peer.revoke_all_tokens()
        async with stage.service.running():
            await stage.wait_for_callback(call, "call.input_required")
        task.complete_task("done")
        async with stage.service.running():
            await stage.sign_in(account="ada")
            await stage.wait_for_callback(call, "call.finished")
            assert await stage.read_text(call) == "done"
    assert tasks.side_effects == ["work"]


async def test_mcp_clients_of_both_eras_open_the_login_page_and_get_the_result(tmp_path: Path) -> None:
    async with serving_sdk_peer(AccountServer().app) as peer, serving_stage(tmp_path, peer) as stage:
        opened: list[str] = []

        async def open_url(context: object, params: object) -> ElicitResult:
            assert context
            assert isinstance(params, ElicitRequestURLParams)
            opened.append(params.url)
            async with Browser(account="ada", answers={"key": stage.key}) as browser:
                page = await browser.visit(params.url)
            return ElicitResult(action="accept" if "You are signed in" in page.text else "cancel")

        async with stage.service.running():
            for mode in ("legacy", "2026-07-28"):
                peer.revoke_all_tokens()
                authorization = {"authorization": f"Bearer {stage.key}"}
                async with (
                    httpx2.AsyncClient(headers=authorization, timeout=WAIT_SECONDS) as http,
                    Client(
                        streamable_http_client(f"{stage.service.url}/mcp/files", http_client=http),
                        mode=mode,
                        elicitation_callback=open_url,
                    ) as client,
                ):
                    result = await client.call_tool("whoami", {})
                assert [content.model_dump()["text"] for content in result.content] == ["ada"], mode
        assert opened == [f"{stage.service.url}/login/files"] * 2
