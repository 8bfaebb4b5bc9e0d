"""`kill -9` between the end of a call and the answer to the client that waits for it: now the callback must ring."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.webhook import INLINE_GRACE_SECONDS
from tests.support.crash import finished_events
from tests.support.processes import WAIT_SECONDS, acknowledged, service
from tests.support.receivers import NO_CONTENT, answering, serve
from tests.support.upstreams import Stage, serving


@pytest.mark.requirement("R35")
@pytest.mark.requirement("R22")
async def test_a_detached_webhook_rings_when_the_service_died_before_it_answered(tmp_path: Path) -> None:
    stage = Stage()
    async with serving(stage.app()) as upstream, serve(answering(NO_CONTENT)) as receiver:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        call = {
            "upstream": "stage",
            "tool": "echo",
            "arguments": {"say": "hello"},
            "wait_seconds": 30,
            "callback": {"url": receiver.url(), "when": "detached"},
        }
        async with service(**spec, unit="Ends._record", after=True) as doomed:
            assert await acknowledged(doomed.url, "/v1/calls", call) is None
            assert await doomed.died() == -9

        assert receiver.requests == []
        async with service(**spec, ahead_seconds=INLINE_GRACE_SECONDS) as revived:
            async with httpx.AsyncClient(base_url=revived.url, timeout=WAIT_SECONDS) as client:
                (ended,) = (await client.get("/v1/calls")).json()["calls"]
            events = await finished_events(revived, receiver, ended["id"])

    (event,) = events.values()
    assert event["data"]["outcome"] == "result"
    assert event["data"]["answered_inline"] is False
