"""Ringbacks behind each other: a chain works, and a circle is found whichever of them connects first."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.meta import INSTANCES_META_KEY
from ringback.runner.drivers.selection import predict_driver_name
from ringback.upstreams import proxy
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    Send,
    make_http_config,
    send_result,
    serving,
    wait_until_true,
)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a circle a handshake waits for itself: until this time is over."""
    monkeypatch.setattr(proxy, "CONNECT_WAIT_SECONDS", 0.1)


@dataclass
class Ringback:
    url: str
    running: RunningApplication
    configs: list[UpstreamConfig] = field(default_factory=list[UpstreamConfig])

    async def connect_to(self, *urls: str) -> None:
        self.configs[:] = [make_http_config(url, name=f"next{number}") for number, url in enumerate(urls)]
        await self.running.app.services.upstream_reloads.reload_upstreams()

    async def list_upstreams(self) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(base_url=self.url, timeout=WAIT_SECONDS) as http:
            return (await http.get("/v1/upstreams")).json()["upstreams"]

    async def wait_for(self, state: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            while (upstream := (await self.list_upstreams())[0])["state"] != state:
                pass
        return upstream

    async def list_tools(self) -> list[str]:
        async with httpx.AsyncClient(base_url=self.url, timeout=WAIT_SECONDS) as http:
            return [tool["name"] for tool in (await http.get("/v1/upstreams/next0/tools")).json()["tools"]]


@asynccontextmanager
async def running_ringback(folder: Path, number: int) -> AsyncGenerator[Ringback]:
    """One with keys, and so an id, of its own."""
    folder = folder / str(number)
    folder.mkdir()
    key = base64.b64encode(bytes([number]) * 32).decode()
    configs: list[UpstreamConfig] = []
    async with (
        running_application(
            folder, auth="off", secret_keys=f"k{number}:{key}", read_configs=lambda: configs
        ) as running,
        serving_api(running.app.api) as url,
    ):
        yield Ringback(url, running, configs)


async def test_a_ringback_behind_a_ringback_works(tmp_path: Path) -> None:
    async with (
        serving(ControlledUpstream().app()) as stage,
        running_ringback(tmp_path, 1) as inner,
        running_ringback(tmp_path, 2) as outer,
    ):
        await inner.connect_to(stage.url)
        await inner.wait_for("ready")
        await outer.connect_to(f"{inner.url}/mcp/next0")
        await outer.wait_for("ready")

        assert "echo" in await outer.list_tools()


async def test_a_service_that_is_its_own_upstream_under_another_name_is_found_at_the_handshake(tmp_path: Path) -> None:
    async with running_ringback(tmp_path, 1) as alone:
        await alone.connect_to(f"{alone.url}/mcp")
        itself = await alone.wait_for("failing")

    assert itself["last_error"] == "ringback_itself"
    assert "Remove it" in itself["advice"]


async def test_a_circle_of_three_is_found_by_the_one_that_closes_it(tmp_path: Path) -> None:
    async with (
        running_ringback(tmp_path, 1) as first,
        running_ringback(tmp_path, 2) as second,
        running_ringback(tmp_path, 3) as third,
    ):
        await third.connect_to(f"{first.url}/mcp")
        await third.wait_for("ready")
        await second.connect_to(f"{third.url}/mcp")
        await second.wait_for("ready")
        await first.connect_to(f"{second.url}/mcp")
        closing = await first.wait_for("failing")

        assert closing["last_error"] == "ringback_itself"
        assert (await second.list_upstreams())[0]["state"] == "ready"


async def test_two_that_connect_to_each_other_at_once_do_not_form_a_circle(tmp_path: Path) -> None:
    async with running_ringback(tmp_path, 1) as first, running_ringback(tmp_path, 2) as second:
        await asyncio.gather(first.connect_to(f"{second.url}/mcp"), second.connect_to(f"{first.url}/mcp"))

        async def is_settled() -> bool:
            found = [(await each.list_upstreams())[0] for each in (first, second)]
            errors = [each["last_error"] for each in found if each["state"] == "failing"]
            return errors == ["ringback_itself"] and any(each["state"] == "ready" for each in found)

        async with asyncio.timeout(WAIT_SECONDS):
            while not await is_settled():
                pass


async def test_a_list_of_a_running_session_that_leads_back_ends_the_session_and_not_the_request_that_asks_for_it() -> (
    None
):
    own_id = "a" * 32
    meta: dict[str, Any] = {}

    async def list_tools(message: dict[str, Any], send: Send) -> None:
        await send_result(message, {"tools": [], "_meta": meta, "resultType": "complete"}, send)

    app = OverriddenResponses(ControlledUpstream().app(), {"tools/list": list_tools})
    async with (
        serving(app) as stage,
        UpstreamRegistry(
            [make_http_config(stage.url, name="next")],
            clock=SystemClock(),
            random_fraction=lambda: 0.5,
            predict_driver_name=predict_driver_name,
            own_id=own_id,
        ) as upstreams,
    ):
        connection = upstreams.connections.shared["next"]
        await connection.get_shared_session()
        meta[INSTANCES_META_KEY] = [own_id]

        assert await connection.lists.get_fresh_tools(age_seconds_max=0, can_elicit=False) is None
        await wait_until_true(lambda: connection.get_info().last_error == "ringback_itself")
