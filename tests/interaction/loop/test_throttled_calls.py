"""A call that waits after HTTP 429 says so, and is not counted among those that run at its upstream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringback.client import RingbackClient
from ringback.domain.principal import ALL_SCOPES
from ringback.runner import leased_call
from tests.support.application import running_application, wait_until_ended
from tests.support.upstreams import (
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_http_config,
    serving,
)

pytestmark = pytest.mark.requirement("R33")


@asynccontextmanager
async def refusing_once(folder: Path, *, retry_after: str) -> AsyncGenerator[RingbackClient]:
    overrides: dict[str, ResponseOverride] = {}

    async def refuse(message: dict[str, Any], send: Send) -> None:
        overrides.clear()
        headers = [(b"retry-after", retry_after.encode()), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body", "body": b"later"})

    overrides["tools/call"] = refuse
    async with (
        serving(OverriddenResponses(ControlledUpstream().app(), overrides)) as server,
        running_application(folder, make_http_config(server.url)) as ringback,
        asyncio.timeout(WAIT_SECONDS),
    ):
        yield await ringback.create_agent_client("alice", scopes=ALL_SCOPES)


async def test_a_call_that_waits_after_429_shows_until_when_and_counts_as_waiting(tmp_path: Path) -> None:
    """It looked like a running one, and its upstream like one that runs more calls than it may."""
    async with refusing_once(tmp_path, retry_after="1800") as alice:
        call = (await alice.start_call("stage", "echo", {}, timeout_seconds=7200)).call
        while call.progress is None:
            await asyncio.sleep(0)
            call = await alice.call(call.id)
        (upstream,) = await alice.upstreams()
        await alice.cancel(call.id)
        ended = await wait_until_ended(alice, call)

    assert call.progress.message is not None
    assert call.progress.message.startswith(
        "The upstream takes no more requests now (HTTP 429). The call is sent again at 2"
    )
    assert (call.runs, upstream.calls_in_flight, upstream.calls_waiting) == (0, 0, 1)
    assert (ended.outcome, ended.runs) == ("cancelled", 0)


async def test_a_call_that_has_waited_does_not_go_on_to_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased_call, "SHOWN_WAIT_SECONDS_MIN", 0.0)
    async with refusing_once(tmp_path, retry_after="1") as alice:
        ended = await wait_until_ended(alice, (await alice.start_call("stage", "echo", {})).call)

    assert ended.progress is not None
    assert (ended.outcome, ended.progress.message) == ("result", "The call was sent again.")
