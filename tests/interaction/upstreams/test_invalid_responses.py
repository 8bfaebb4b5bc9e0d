"""Garbage, and results that are large or break their schema: each call ends truthfully and others continue."""

import asyncio
import json
from typing import Any, Final

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.runner.drivers import completions
from ringback.upstreams.transports import guarded_http
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    get_error_message,
    make_app_of_era,
    make_http_config,
    open_upstreams,
    respond_with,
    respond_with_result,
    run_upstream_call,
    send_response,
    serving,
)

FEW_BYTES: Final = 100_000
"""The limit of a result in these tests: with that of the service, 16 MiB, a response beyond it takes a second of CPU."""


async def _close_within_stream(message: dict[str, Any], send: Send) -> None:
    await send_response(send, 200, "text/event-stream", b"event: message\ndata: {", promised_bytes=1000)


async def _streams_nothing(message: dict[str, Any], send: Send) -> None:
    await send_response(send, 200, "text/event-stream", b": ping\n\n")


def _streams_characters(count: int) -> ResponseOverride:
    async def stream(message: dict[str, Any], send: Send) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "x": "y" * count}})
        await send_response(send, 200, "text/event-stream", f"event: message\ndata: {body}\n\n".encode())

    return stream


async def _streams_garbage(message: dict[str, Any], send: Send) -> None:
    await send_response(send, 200, "text/event-stream", b"event: message\ndata: {oops\n\n")


GARBAGE_RESPONSES: Final[dict[str, tuple[ResponseOverride, CallOutcome, str]]] = {
    "html": (respond_with(200, "text/html", b"<h1>Hello</h1>"), CallOutcome.UPSTREAM_ERROR, "HTTP 200 and text/html"),
    "broken JSON": (respond_with(200, "application/json", b"{oops"), CallOutcome.UPSTREAM_ERROR, "no MCP answer"),
    "a crash": (respond_with(500, "text/plain", b"secret traceback"), CallOutcome.UPSTREAM_ERROR, "HTTP 500"),
    "missing credentials": (
        respond_with(401, "application/json", b'{"error": "no"}'),
        CallOutcome.REJECTED,
        "requires credentials",
    ),
    "nothing": (respond_with(202, "text/plain", b""), CallOutcome.UPSTREAM_ERROR, "HTTP 202"),
    "half of it": (
        respond_with(200, "application/json", b'{"jsonrpc"', promised_bytes=999),
        CallOutcome.UNKNOWN,
        "middle of the answer",
    ),
    "another result": (respond_with_result({"tools": []}), CallOutcome.UPSTREAM_ERROR, "not a CallToolResult"),
    "a question": (
        respond_with_result({"resultType": "input_required", "inputRequests": {}}),
        CallOutcome.UPSTREAM_ERROR,
        "asks for input",
    ),
    "half a stream": (_close_within_stream, CallOutcome.UNKNOWN, "before it answered"),
    "an empty stream": (_streams_nothing, CallOutcome.UNKNOWN, "before it answered"),
    "an endless event": (
        _streams_characters(2 * FEW_BYTES),
        CallOutcome.UPSTREAM_ERROR,
        f"answer is larger than {FEW_BYTES} bytes",
    ),
    "a result that is too large to store": (
        _streams_characters(FEW_BYTES),
        CallOutcome.UPSTREAM_ERROR,
        f"is larger than {FEW_BYTES} bytes",
    ),
    "a broken event": (_streams_garbage, CallOutcome.UPSTREAM_ERROR, "no JSON-RPC message"),
}


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("spoiling", "outcome", "message"),
    [pytest.param(*case, id=name) for name, case in GARBAGE_RESPONSES.items()],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_garbage_ends_its_own_call_truthfully_and_no_other(
    era: str, spoiling: ResponseOverride, outcome: CallOutcome, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (guarded_http, completions):
        monkeypatch.setattr(module, "RESULT_BYTES_MAX", FEW_BYTES)
    stage = ControlledUpstream()
    async with (
        serving(OverriddenResponses(make_app_of_era(stage.app(), era), {"tool:spoiled": spoiling})) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        held = asyncio.create_task(run_upstream_call(upstreams, "hold"))
        await stage.wait_until_held(1)
        ending = await run_upstream_call(upstreams, "spoiled")
        stage.release.set()
        other = await held

    assert ending.outcome is outcome
    assert message in get_error_message(ending)
    assert "secret" not in get_error_message(ending)
    assert other.outcome is CallOutcome.RESULT


async def test_a_large_result_comes_whole_as_json_and_as_a_stream() -> None:
    size = 12 * 1024**2
    large = {"content": [{"type": "text", "text": "x" * size}]}

    async def streamed(message: dict[str, Any], send: Send) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": large})
        await send_response(send, 200, "text/event-stream", f"event: message\ndata: {body}\n\n".encode())

    spoilings = {"tool:spoiled": respond_with_result(large), "tool:echo": streamed}
    async with (
        serving(OverriddenResponses(ControlledUpstream().app(), spoilings)) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        for tool in ("spoiled", "echo"):
            ending = await run_upstream_call(upstreams, tool)
            assert ending.result is not None
            assert len(ending.result) > size


async def test_a_result_that_breaks_its_output_schema_passes_with_the_meta_that_hosts_need() -> None:
    result: dict[str, Any] = {
        "content": [],
        "structuredContent": {"n": "no number"},
        "_meta": {"ui/resource": "ui://x"},
        "extra": None,
    }
    async with (
        serving(
            OverriddenResponses(ControlledUpstream().app(), {"tool:spoiled": respond_with_result(result)})
        ) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        ending = await run_upstream_call(upstreams, "spoiled")

    assert ending.result is not None
    assert json.loads(ending.result) == result
