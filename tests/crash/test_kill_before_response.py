"""`kill -9` between the end of a call and the response to its waiting client: the callback must be sent."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.webhook import INLINE_GRACE_SECONDS
from tests.support.crash_checks import wait_for_finished_events
from tests.support.processes import WAIT_SECONDS, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, respond_with, serving_receiver
from tests.support.upstreams import ControlledUpstream, serving


@pytest.mark.requirement("R35")
@pytest.mark.requirement("R22")
async def test_a_detached_webhook_gets_a_callback_when_the_service_died_before_the_response(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as upstream, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        call = {
            "upstream": "stage",
            "tool": "echo",
            "arguments": {"say": "hello"},
            "wait_seconds": 30,
            "callback": {"url": receiver.url(), "when": "detached"},
        }
        async with running_process(**spec, unit="CompletionBatcher._record_completions", after=True) as doomed:
            assert await post_unless_killed(doomed.url, "/v1/calls", call) is None
            assert await doomed.wait_until_dead() == -9

        assert receiver.requests == []
        async with running_process(**spec, ahead_seconds=INLINE_GRACE_SECONDS) as revived:
            async with httpx.AsyncClient(base_url=revived.url, timeout=WAIT_SECONDS) as client:
                (ended,) = (await client.get("/v1/calls")).json()["calls"]
            events = await wait_for_finished_events(revived, receiver, ended["id"])

    (event,) = events.values()
    assert event["data"]["outcome"] == "result"
    assert event["data"]["answered_inline"] is False
