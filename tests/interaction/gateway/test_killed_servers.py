"""What a client reads when the server behind Ringback is killed during its call, and at its next looks."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.support.application import running_application
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, make_legacy_app, serving

WINDOW_SECONDS: Final = 60.0
"""The longest window, so that the waiting request ends with its call."""


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_waiting_client_reads_that_the_outcome_is_unknown_and_goes_on_with_the_next_server(
    tmp_path: Path, mode: Any
) -> None:
    killed, next_one = (ControlledUpstream() for _ in range(2))

    def wrap(upstream: ControlledUpstream) -> Any:
        return upstream.app() if mode == "legacy" else make_legacy_app(upstream.app())  # its era is not the client's

    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(wrap(killed)) as server,
        running_application(
            tmp_path,
            make_http_config(server.url),
            auth="off",
            allowed_hosts=("127.0.0.1",),
            inline_wait_seconds=WINDOW_SECONDS,
            wait_seconds_max=WINDOW_SECONDS,
        ) as ringback,
        serving(ringback.app.api) as api,
        Client(f"{api.url}/stage", mode=mode) as client,
    ):
        waiting = asyncio.create_task(client.call_tool("hold", {}))
        await killed.wait_until_held(1)
        await server.kill_server()
        with pytest.raises(MCPError, match="Check what the tool has done before you call it again") as ended:
            await waiting
        looked = await client.call_tool("ringback_get_call", {"call_id": ended.value.error.data["call_id"]})
        async with serving(wrap(next_one), port=server.port):
            later = await client.call_tool("echo", {})

    assert looked.structured_content is not None
    assert (looked.is_error, looked.structured_content["outcome"]) == (True, "unknown")
    assert not later.is_error
    assert [call.name for call in next_one.calls] == ["echo"]
