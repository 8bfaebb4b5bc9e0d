"""Calls to real, unmodified MCP servers: stdio and HTTP, modern and legacy."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.upstreams import (
    STDIO_SERVER,
    WAIT_SECONDS,
    App,
    ControlledUpstream,
    HttpServer,
    OverriddenResponses,
    Send,
    make_http_config,
    make_legacy_app,
    make_python_config,
    open_upstreams,
    respond_with_result,
    run_upstream_call,
    send_json,
    send_response,
    send_result,
    serving,
)

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

PROBE_ERROR = r"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}},
        "tools/list": {"tools": [{"name": "old", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "still here"}]},
    }
    if "id" not in message:
        continue
    if message["method"] not in answers:
        sys.exit(1)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}), flush=True)
"""


@pytest.fixture(params=[MODERN, LEGACY])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def make_app(stage: ControlledUpstream, era: str, **options: Any) -> App:
    return stage.app(**options) if era == MODERN else make_legacy_app(stage.app(**options))


@asynccontextmanager
async def serving_era(
    stage: ControlledUpstream, era: str, **options: Any
) -> AsyncGenerator[tuple[UpstreamRegistry, HttpServer]]:
    async with (
        serving(make_app(stage, era, **options)) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        yield upstreams, server


def completion_result(ending: CallCompletion) -> dict[str, Any]:
    assert ending.result is not None
    return json.loads(ending.result)


def completion_text(ending: CallCompletion) -> Any:
    return json.loads(completion_result(ending)["content"][0]["text"])


@pytest.mark.requirement("R28")
async def test_a_tool_answers_over_http_in_both_eras(era: str) -> None:
    stage = ControlledUpstream()
    arguments = {"a": None, "b": [None, 1.5], "c": {"d": "ä"}}
    async with serving_era(stage, era) as (upstreams, _):
        ending = await run_upstream_call(upstreams, "echo", arguments, meta={"vendor/trace": "t1"})

        assert ending.outcome is CallOutcome.RESULT
        assert completion_text(ending) == arguments
        assert "_meta" not in completion_result(ending)
        assert stage.versions == [era]
        assert stage.calls[0].meta is not None
        assert stage.calls[0].meta["vendor/trace"] == "t1"  # pyright: ignore[reportGeneralTypeIssues] - any key may be there
        (info,) = upstreams.tool_catalog.list_upstreams()
        assert (info.state, info.protocol_version, info.last_error) == ("ready", era, None)
        assert info.connections == 1


@pytest.mark.parametrize("options", [{"json_response": True}, {"stateless_http": True}])
async def test_servers_that_answer_in_json_or_keep_no_sessions_are_served(era: str, options: dict[str, bool]) -> None:
    async with serving_era(ControlledUpstream(), era, **options) as (upstreams, _):
        assert completion_text(await run_upstream_call(upstreams, "echo", {"n": 1})) == {"n": 1}


async def test_tool_errors_and_protocol_errors_are_stored_apart(era: str) -> None:
    async with serving_era(ControlledUpstream(), era) as (upstreams, _):
        failed = await run_upstream_call(upstreams, "fail")
        refused = await run_upstream_call(upstreams, "refuse")

    assert failed.outcome is CallOutcome.TOOL_ERROR
    assert refused.outcome is CallOutcome.UPSTREAM_ERROR
    assert refused.error == {"code": -32042, "message": "not today", "data": {"retry": False}}


async def test_progress_arrives_before_the_result(era: str) -> None:
    seen: list[Progress] = []

    async def keep(progress: Progress) -> None:
        seen.append(progress)

    async with serving_era(ControlledUpstream(), era) as (upstreams, _):
        await run_upstream_call(upstreams, "steps", on_progress=keep)

    assert seen == [Progress(progress=1, total=2, message="half"), Progress(progress=2, total=2)]


async def test_cancelling_reaches_the_tool_and_leaves_other_calls_alone(era: str) -> None:
    stage = ControlledUpstream()
    async with serving_era(stage, era) as (upstreams, _):
        doomed = asyncio.create_task(run_upstream_call(upstreams, "hold", {"n": 1}))
        await stage.wait_until_held(1)
        other = asyncio.create_task(run_upstream_call(upstreams, "hold", {"n": 2}))
        await stage.wait_until_held(2)
        doomed.cancel()
        async with asyncio.timeout(WAIT_SECONDS):
            await stage.cancelled.wait()
        stage.release.set()

        assert (await other).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R11")
async def test_hundreds_of_calls_reach_one_http_upstream_at_once(era: str, *, deep: bool) -> None:
    """The pool of the SDK's client would hold all but a hundred."""
    count = 300 if deep else 120
    stage = ControlledUpstream()
    async with serving_era(stage, era) as (upstreams, _):
        calls = [asyncio.create_task(run_upstream_call(upstreams, "hold", {"n": number})) for number in range(count)]
        async with asyncio.timeout(WAIT_SECONDS):
            await stage.wait_until_held(count)
        assert upstreams.tool_catalog.list_upstreams()[0].calls_in_flight == count
        stage.release.set()
        endings = await asyncio.gather(*calls)

    assert {ending.outcome for ending in endings} == {CallOutcome.RESULT}
    assert [completion_text(ending)["n"] for ending in endings] == list(range(count))


async def test_configured_headers_go_out_and_nothing_is_compressed() -> None:
    seen: list[dict[bytes, bytes]] = []
    inner = ControlledUpstream().app()

    async def spy(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope.get("headers", [])))
        await inner(scope, receive, send)

    async with (
        serving(spy) as server,
        open_upstreams(make_http_config(server.url, headers={"X-Key": "k1"})) as upstreams,
    ):
        await run_upstream_call(upstreams, "echo")

    assert {headers[b"x-key"] for headers in seen[1:]} == {b"k1"}  # the first is the server's own start
    assert {headers[b"accept-encoding"] for headers in seen[1:]} == {b"identity"}


@pytest.mark.parametrize(
    "discovered",
    [{"supportedVersions": [LEGACY], "capabilities": {}}, {"hello": "world"}],
    ids=["old only", "nonsense"],
)
async def test_a_server_without_a_modern_version_is_initialized_as_legacy(
    discovered: dict[str, Any],
) -> None:
    stage = ControlledUpstream()
    app = OverriddenResponses(stage.app(), {"server/discover": respond_with_result(discovered)})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")

    assert stage.versions == [LEGACY]


async def test_a_server_that_was_too_slow_for_the_probe_is_probed_again_when_it_refuses_the_old_way() -> None:
    probes = 0

    async def discover(message: dict[str, Any], send: Send) -> None:
        nonlocal probes
        probes += 1
        if probes == 1:
            await send_response(send, 503, "text/plain", b"starting")
        else:
            await send_result(message, {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, **COMPLETE}, send)

    async def initialize(message: dict[str, Any], send: Send) -> None:
        error = {"code": -32022, "message": "Unsupported", "data": {"supported": [MODERN], "requested": LEGACY}}
        await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    stage = ControlledUpstream()
    app = OverriddenResponses(stage.app(), {"server/discover": discover, "initialize": initialize})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")

    assert (stage.versions, probes) == ([MODERN], 2)


# -- stdio ------------------------------------------------------------------------------------------------------------------


async def test_a_child_sees_only_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_SECRET", "ours")
    async with open_upstreams(make_python_config(str(STDIO_SERVER), env={"THEIRS": "yes"})) as upstreams:
        environment = completion_text(await run_upstream_call(upstreams, "whoami"))["environment"]

    assert environment["THEIRS"] == "yes"
    assert "RINGBACK_SECRET" not in environment


async def test_a_childs_noise_disturbs_nothing_and_is_logged_at_debug_level(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback")
    async with open_upstreams(make_python_config(str(STDIO_SERVER))) as upstreams:
        ending = await run_upstream_call(upstreams, "noise")

    assert ending.outcome is CallOutcome.RESULT
    noise = [record for record in caplog.records if "a secret of the child" in str(vars(record).get("text"))]
    assert [record.levelname for record in noise] == ["DEBUG"]
    assert "a secret of the child" not in capfd.readouterr().err


@pytest.mark.requirement("R33")
async def test_a_call_whose_child_is_killed_is_unknown_and_the_next_one_finds_a_new_child() -> None:
    has_progress = asyncio.Event()

    async def inside(_: Progress) -> None:
        has_progress.set()

    async with open_upstreams(make_python_config(str(STDIO_SERVER))) as upstreams:
        first = completion_text(await run_upstream_call(upstreams, "whoami"))["pid"]
        call = asyncio.create_task(run_upstream_call(upstreams, "hold", on_progress=inside))
        async with asyncio.timeout(WAIT_SECONDS):
            await has_progress.wait()
        os.kill(first, signal.SIGKILL)
        ending = await call
        second = completion_text(await run_upstream_call(upstreams, "whoami"))["pid"]

    assert ending.outcome is CallOutcome.UNKNOWN
    assert first != second


async def test_a_child_that_kills_itself_ends_only_its_call() -> None:
    async with open_upstreams(make_python_config(str(STDIO_SERVER))) as upstreams:
        assert (await run_upstream_call(upstreams, "die")).outcome is CallOutcome.UNKNOWN
        assert (await run_upstream_call(upstreams, "whoami")).outcome is CallOutcome.RESULT


async def test_a_server_that_exits_when_it_is_probed_is_reached_by_the_old_handshake(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text(PROBE_ERROR, encoding="utf-8")
    async with open_upstreams(make_python_config(str(script))) as upstreams:
        ending = await run_upstream_call(upstreams, "old")
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert completion_result(ending) == {"content": [{"type": "text", "text": "still here"}]}
    assert info.protocol_version == "2025-06-18"
