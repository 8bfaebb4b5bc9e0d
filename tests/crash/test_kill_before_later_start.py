"""`kill -9` while a call waits for its `not_before`: the next process starts it once, and not before its time."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.clock import SystemClock
from tests.support.crash_checks import wait_until_final
from tests.support.processes import WAIT_SECONDS, running_process
from tests.support.upstreams import ControlledUpstream, serving

LATER: Final = timedelta(hours=1)


async def read_call(url: str, call_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client:
        return (await client.get(f"/v1/calls/{call_id}")).json()


@pytest.mark.requirement("R35")
async def test_a_scheduled_call_survives_kills_and_starts_once_at_its_time(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        not_before = SystemClock().now() + LATER
        call: dict[str, Any] = {
            "upstream": "stage",
            "tool": "echo",
            "arguments": {},
            "not_before": not_before.isoformat(),
        }
        async with running_process(**spec) as doomed:
            async with httpx.AsyncClient(base_url=doomed.url, timeout=WAIT_SECONDS) as client:
                started = (await client.post("/v1/calls", json=call)).json()
            await doomed.kill()
        call_id = started["call_id"]
        async with running_process(**spec) as early:
            waiting = await read_call(early.url, call_id)
            await early.kill()
        calls_before = list(stage.calls)
        async with running_process(**spec, ahead_seconds=LATER.total_seconds()) as late:
            ended = await wait_until_final(late, call_id)
            await late.kill()
        async with running_process(**spec, ahead_seconds=LATER.total_seconds()) as last:
            again = await read_call(last.url, call_id)

    assert (waiting["status"], waiting["dispatched_at"], calls_before) == ("working", None, [])
    assert (ended["outcome"], again["outcome"]) == ("result", "result")
    assert datetime.fromisoformat(ended["dispatched_at"]) >= not_before
    assert len(stage.calls) == 1
