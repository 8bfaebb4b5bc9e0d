"""An operator restarts the connections to one upstream: its calls end truthfully or go on, and it serves the next ones."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringback.backoff import Backoff
from ringback.client import RingbackClient
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.principal import ALL_SCOPES
from ringback.upstreams import connection
from ringback.upstreams.config import Isolation
from ringback.upstreams.registry import UpstreamRegistry
from ringback.upstreams.session import UpstreamSession
from scripts.ports import free_port
from tests.support.application import running_application, wait_until_ended
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import (
    WAIT_SECONDS,
    App,
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_http_config,
    make_legacy_app,
    make_raw_config,
    open_upstreams,
    run_upstream_call,
    send_response,
    serving,
    wait_for_state,
    wait_until_true,
)

pytestmark = pytest.mark.requirement("R22")
REASON = "An operator has restarted the connection to the upstream. The tool may have run."


def require_restarted(ending: CallCompletion) -> None:
    assert ending.error is not None
    assert (ending.outcome, ending.error["message"]) == (CallOutcome.UNKNOWN, REASON)


async def find_pid(upstreams: UpstreamRegistry) -> int:
    ending = await run_upstream_call(upstreams, "whoami")
    assert ending.result is not None
    return json.loads(json.loads(ending.result)["content"][0]["text"])["pid"]


def count_unread_bytes(session: UpstreamSession) -> int:
    """Of the message that is being written."""
    return 0 if session.child is None else session.child.stdin.transport.get_write_buffer_size()


@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_restart_ends_a_command_that_hangs_and_the_next_call_gets_another_one(
    isolation: Isolation, tmp_path: Path
) -> None:
    config = replace(make_raw_config(), isolation=isolation)
    async with open_upstreams(config) as upstreams:
        first = await find_pid(upstreams)
        hanging = asyncio.create_task(run_upstream_call(upstreams, "deaf", {"until": str(tmp_path / "never")}))
        await wait_until_true((tmp_path / "never.awaited").exists)
        restarted = upstreams.restart_connections("stage")
        require_restarted(await hanging)
        second = await find_pid(upstreams)

    assert (restarted.connections, restarted.calls) == (1, 1)
    assert first != second


async def test_a_call_that_a_hanging_command_has_not_read_runs_at_the_next_one(tmp_path: Path) -> None:
    """The pipe is full, so the request is known to be unsent."""
    never = str(tmp_path / "never")
    async with open_upstreams(make_raw_config()) as upstreams:
        hanging = asyncio.create_task(run_upstream_call(upstreams, "deaf", {"until": never}))
        await wait_until_true((tmp_path / "never.awaited").exists)
        half_written = asyncio.create_task(run_upstream_call(upstreams, "whoami", {"filler": "x" * 200_000}))
        session = upstreams.connections.shared["stage"].get_open_session()
        assert session is not None
        await wait_until_true(lambda: count_unread_bytes(session) > 0)
        unsent = asyncio.create_task(run_upstream_call(upstreams, "whoami"))
        await wait_until_true(lambda: upstreams.tool_catalog.list_upstreams()[0].calls_in_flight == 3)
        for _ in range(100):  # its request is queued behind the one that the command does not read
            await asyncio.sleep(0)
        upstreams.restart_connections("stage")

        require_restarted(await hanging)
        require_restarted(await half_written)
        assert (await unsent).outcome is CallOutcome.RESULT


async def test_the_next_command_starts_once_the_last_one_is_gone(tmp_path: Path) -> None:
    """Two of them would want the same file or port."""
    config = make_raw_config(RAW_STUBBORN="1")
    async with open_upstreams(config) as upstreams:
        first = await find_pid(upstreams)
        upstreams.restart_connections("stage")
        second = await find_pid(upstreams)

        assert second != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_a_restart_ends_the_requests_of_an_http_upstream_and_opens_another_session(*, is_legacy: bool) -> None:
    stage = ControlledUpstream()
    app = make_legacy_app(stage.app()) if is_legacy else stage.app()
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        held = asyncio.create_task(run_upstream_call(upstreams, "hold"))
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        upstreams.restart_connections("stage")
        require_restarted(await held)
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)

        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT


async def test_an_upstream_without_a_connection_can_be_restarted() -> None:
    async with open_upstreams(make_http_config("http://127.0.0.1:1/mcp")) as upstreams:
        await wait_for_state(upstreams, "failing")
        restarted = upstreams.restart_connections("stage")

    assert (restarted.connections, restarted.calls) == (0, 0)


async def test_a_restart_during_the_pause_after_a_failed_attempt_connects_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "RECONNECT_BACKOFF", Backoff(first_seconds=3600.0, longest_seconds=3600.0))
    port = free_port()
    async with open_upstreams(make_http_config(f"http://127.0.0.1:{port}/mcp")) as upstreams:
        await wait_for_state(upstreams, "failing")
        async with serving(ControlledUpstream().app(), port=port):
            upstreams.restart_connections("stage")

            assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT


async def test_a_restart_ends_an_attempt_to_connect_that_hangs() -> None:
    """It lasts two minutes by itself."""
    hanging, overrides = asyncio.Event(), dict[str, ResponseOverride]()

    async def hang(message: dict[str, Any], send: Send) -> None:
        overrides.pop("server/discover", None)
        hanging.set()
        await asyncio.Event().wait()

    overrides |= {"server/discover": hang, "initialize": hang}
    app = OverriddenResponses(ControlledUpstream().app(), overrides)
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await asyncio.wait_for(hanging.wait(), WAIT_SECONDS)
        upstreams.restart_connections("stage")

        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT


@asynccontextmanager
async def restartable(folder: Path, app: App) -> AsyncGenerator[RingbackClient]:
    async with serving(app) as server, running_application(folder, make_http_config(server.url)) as ringback:
        yield await ringback.create_agent_client("alice", scopes=ALL_SCOPES)


async def test_a_call_whose_task_runs_at_the_upstream_goes_on_after_a_restart(tmp_path: Path) -> None:
    stage = TaskUpstream()
    async with restartable(tmp_path, stage.app()) as alice:
        call = (await alice.start_call("stage", "work", {})).call
        task = await stage.wait_for_task(1)
        await stage.wait_until(lambda: stage.count_requests("tasks/get") > 0)
        restarted = await alice.restart_upstream("stage")
        task.complete_task("done")
        ended = await wait_until_ended(alice, call)

    assert (restarted.name, restarted.connections) == ("stage", 1)
    assert ended.outcome == "result"
    assert ended.runs == 1


async def test_a_call_that_waits_after_429_is_sent_after_a_restart(tmp_path: Path) -> None:
    """Its tool has not run, so it must not end as unknown."""
    stage, refused = ControlledUpstream(), asyncio.Event()
    overrides: dict[str, ResponseOverride] = {}

    async def refuse_once(message: dict[str, Any], send: Send) -> None:
        overrides.clear()
        await send_response(send, 429, "text/plain", b"later")
        refused.set()

    overrides["tools/call"] = refuse_once
    async with restartable(tmp_path, OverriddenResponses(stage.app(), overrides)) as alice:
        started = (await alice.start_call("stage", "echo", {})).call
        await asyncio.wait_for(refused.wait(), WAIT_SECONDS)
        call = await alice.call(started.id)
        while call.dispatched_at is not None and call.status == "working":
            await asyncio.sleep(0)
            call = await alice.call(call.id)
        restarted = await alice.restart_upstream("stage")
        ended = await wait_until_ended(alice, call)

    assert restarted.calls == 0
    assert (ended.outcome, ended.runs) == ("result", 1)
    assert len(stage.calls) == 1
