"""An upstream that floods a call with progress."""

import asyncio
from pathlib import Path

from tests.support.application import running_application
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, serving

COALESCED_MAX = 60
"""At most one a second is stored; the tool takes less than a minute on any machine."""


async def test_a_thousand_progress_notifications_at_once_cost_a_few_events_and_the_last_is_kept(tmp_path: Path) -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        running_application(tmp_path, make_http_config(server.url)) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        started = await alice.start_call("stage", "flood", {})
        final = await asyncio.wait_for(alice.wait(started.call.id), WAIT_SECONDS)
        names = [event.name async for event in alice.events(call_id=started.call.id)]

    assert (final.status, final.outcome) == ("completed", "result")
    assert final.progress is not None
    assert final.progress.progress == 1000
    assert names[-1] == "call.finished"
    assert len(names) <= COALESCED_MAX
