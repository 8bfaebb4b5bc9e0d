"""Isolation: which calls share a session with an upstream."""

import asyncio
import json
import os
from dataclasses import replace

import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.principal import Principal
from ringback.upstreams.config import Isolation
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.examples import CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.upstreams import (
    STDIO_SERVER,
    WAIT_SECONDS,
    ControlledUpstream,
    Receive,
    Scope,
    Send,
    make_http_config,
    make_legacy_app,
    make_python_config,
    open_bound_driver,
    open_upstreams,
    serving,
)

CHILD = replace(make_python_config(str(STDIO_SERVER)), isolation=Isolation.PRINCIPAL)


async def run_call_for(upstreams: UpstreamRegistry, principal: str, tool: str) -> CallCompletion:
    call = replace(CALL, principal=Principal(principal), upstream="stage", tool=tool, arguments={})
    async with asyncio.timeout(WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
        ending = await session.run_call(RecordingCallContext(call))
        assert isinstance(ending, CallCompletion)
        return ending


async def is_missing(upstreams: UpstreamRegistry, tool: str) -> bool:
    listed = await upstreams.tool_catalog.list_tools("stage", principal=Principal("anybody"))
    return tool not in {each.name for each in listed}


async def get_pid(upstreams: UpstreamRegistry, principal: str) -> int:
    ending = await run_call_for(upstreams, principal, "whoami")
    assert ending.result is not None
    return json.loads(json.loads(ending.result)["content"][0]["text"])["pid"]


@pytest.mark.requirement("R25")
@pytest.mark.requirement("R28")
@pytest.mark.requirement("R33")
async def test_each_principal_has_a_process_and_its_death_affects_no_other_principal() -> None:
    async with open_upstreams(CHILD) as upstreams:
        alice, bob = await get_pid(upstreams, "alice"), await get_pid(upstreams, "bob")
        assert alice != bob
        assert await asyncio.gather(*(get_pid(upstreams, "alice") for _ in range(3))) == [alice] * 3

        died = await run_call_for(upstreams, "alice", "die")

        assert died.outcome is CallOutcome.UNKNOWN
        assert await get_pid(upstreams, "alice") not in {alice, bob}
        assert await get_pid(upstreams, "bob") == bob


async def test_with_one_session_the_next_principal_waits_until_it_is_free() -> None:
    async with open_upstreams(replace(CHILD, max_concurrent=1)) as upstreams:
        alice = await get_pid(upstreams, "alice")
        inside = asyncio.Event()
        call = replace(CALL, principal=Principal("alice"), upstream="stage", tool="hold", arguments={})

        async def hold() -> None:
            async def on_progress(_progress: object) -> None:
                inside.set()

            async with open_bound_driver(upstreams, call) as session:
                await session.run_call(RecordingCallContext(call, on_progress=on_progress))

        holding = asyncio.create_task(hold())
        await asyncio.wait_for(inside.wait(), WAIT_SECONDS)
        waiting = asyncio.create_task(get_pid(upstreams, "bob"))
        assert await get_pid(upstreams, "alice") == alice
        assert not waiting.done()
        holding.cancel()

        assert await waiting != alice
        os.kill(await get_pid(upstreams, "alice"), 0)


async def test_a_server_over_http_is_called_in_a_session_for_each_principal() -> None:
    app, sessions = make_legacy_app(ControlledUpstream().app()), set[str]()

    async def record_session(scope: Scope, receive: Receive, send: Send) -> None:
        sessions.add(dict(scope.get("headers", [])).get(b"mcp-session-id", b"").decode())
        await app(scope, receive, send)

    async with serving(record_session) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.PRINCIPAL)
        async with open_upstreams(config) as upstreams:
            endings = [await run_call_for(upstreams, who, "echo") for who in ("alice", "bob", "alice")]

    assert {ending.outcome for ending in endings} == {CallOutcome.RESULT}
    assert len(sessions - {""}) == 3, "alice's, bob's, and the one in which tools are listed"


async def test_an_open_session_of_a_principal_knows_the_tools_that_are_listed_later() -> None:
    """What a tool says about tasks and headers decides how it is called, and the session may be open for days."""
    stage = ControlledUpstream()
    call = replace(CALL, upstream="stage", tool="learned", accepts_input=True)
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(make_legacy_app(stage.app())) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
        upstreams.open_call_session(call) as earlier,
    ):
        before = earlier.get_tool("learned")
        await run_call_for(upstreams, "alice", "learn")
        while await is_missing(upstreams, "learned"):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)  # the answer to `learn` may overtake the notification
        async with upstreams.open_call_session(call) as later:
            found = later.get_tool("learned")

    assert (before, earlier.legacy_session.session_id) == (None, later.legacy_session.session_id)
    assert found is not None
