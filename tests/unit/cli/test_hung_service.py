"""What the bridge says about a service that runs and responds to nothing. It ends no process."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ringback.cli.embedded_service.paths import ServicePaths
from ringback.cli.embedded_service.runtime_file import RunningService, write_running_service
from ringback.cli.embedded_service.starter import START_SECONDS, ServiceNotStarted, ServiceStarter
from ringback.cli.file_locks import open_lock_file, read_process_id, try_lock, write_process_id
from ringback.cli.stdio_bridge import EndpointConfig, StartedService
from ringback.cli.stdio_bridge.responses import NoResponse
from tests.support.bridge_stage import MODERN_META, ScriptedStream, running_bridge
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS

RUNNING = RunningService(url="http://127.0.0.1:1", api_key="rbk_secret", pid=4711)
HUNG = "Your service (process 4711) runs but has not responded for 9 s. Its log: "


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    found = ServicePaths(config=tmp_path / "mcp.json", folder=tmp_path / "state")
    found.create_folder()
    return found


def make_config(running: RunningService) -> EndpointConfig:
    return EndpointConfig(url=running.url)


class ScriptedProbe:
    """Finds the service responsive this often, then not."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.used_up = asyncio.Event()

    async def __call__(self, url: str) -> bool:
        assert url == RUNNING.url
        self.left -= 1
        if self.left == 0:
            self.used_up.set()
        return self.left >= 0


def make_service(paths: ServicePaths, probe: Callable[[str], Awaitable[bool]]) -> StartedService:
    clock = FakeClock()
    starter = ServiceStarter(paths, clock=clock, environment={})
    return StartedService(starter, make_config, clock=clock, probe=probe)


async def test_a_service_that_responds_late_but_responds_is_waited_for(paths: ServicePaths) -> None:
    probe = ScriptedProbe(3)

    async def send() -> httpx2.Response:
        await probe.used_up.wait()
        return httpx2.Response(204)

    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        write_running_service(paths, RUNNING)
        async with asyncio.timeout(WAIT_SECONDS):
            response = await make_service(paths, probe).wait_for_response(send())

    assert response.status_code == 204


@pytest.mark.parametrize(("namespace", "where"), [("", ""), ("pid:[1]", " in its container")])
async def test_a_hung_service_is_named_with_its_process_and_its_log(
    paths: ServicePaths, namespace: str, where: str
) -> None:
    sending = asyncio.Event()
    ended = asyncio.Event()

    async def send() -> httpx2.Response:
        sending.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        write_running_service(paths, replace(RUNNING, pid_namespace=namespace))
        with pytest.raises(NoResponse) as hung:
            await make_service(paths, ScriptedProbe(1)).wait_for_response(send())

    assert (hung.value.is_hung, hung.value.may_have_arrived) == (True, True)
    assert str(hung.value).startswith(f"{HUNG}{paths.log}. If it stays so, end it{where}: kill -9 4711.")
    assert "rbk_secret" not in str(hung.value)
    assert sending.is_set()
    assert ended.is_set(), "the request is given up"


async def test_a_response_that_comes_while_its_request_is_given_up_is_closed(paths: ServicePaths) -> None:
    probing, responded = asyncio.Event(), asyncio.Event()
    response = httpx2.Response(200, stream=ScriptedStream())

    async def send() -> httpx2.Response:
        await probing.wait()
        responded.set()
        return response

    async def probe(_url: str) -> bool:
        probing.set()
        await asyncio.Event().wait()
        raise AssertionError

    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        write_running_service(paths, RUNNING)
        waiting = asyncio.create_task(make_service(paths, probe).wait_for_response(send()))
        async with asyncio.timeout(WAIT_SECONDS):
            await responded.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert response.is_closed


async def test_a_service_that_has_died_is_not_called_hung(paths: ServicePaths) -> None:
    async def send() -> httpx2.Response:
        for _ in range(100):
            await asyncio.sleep(0)
        raise httpx2.ReadError("reset")

    with pytest.raises(httpx2.ReadError):
        await make_service(paths, ScriptedProbe(0)).wait_for_response(send())


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("tools/call", "call the tool again with _meta ringback/idempotencyKey"),
        ("tools/list", "Send the request again"),
    ],
)
async def test_a_client_of_a_hung_service_gets_the_advice_at_once(method: str, advice: str) -> None:
    params: dict[str, Any] = {"name": "echo", "arguments": {}} if method == "tools/call" else {}
    async with running_bridge() as stage:
        stage.service.script(method, NoResponse(f"{HUNG}/log.", is_hung=True))
        response = await stage.request(method, params | MODERN_META)
        attempts = len(stage.service.select(method))

    assert response["error"]["message"].startswith(HUNG)
    assert advice in response["error"]["message"]
    assert attempts == 1


async def test_a_service_that_never_listens_is_named_with_its_process(paths: ServicePaths) -> None:
    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        write_process_id(lock)
        holder = read_process_id(paths.lock)
        assert holder is not None
        with pytest.raises(ServiceNotStarted, match=f"kill -9 {holder}$") as failed:
            await ServiceStarter(paths, clock=FakeClock(), environment={}).ensure_running()

    assert f"does not listen after {START_SECONDS:g} s" in str(failed.value)
    assert read_process_id(paths.lock) is None, "it has left the lock"
