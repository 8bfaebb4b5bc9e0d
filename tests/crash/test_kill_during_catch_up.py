"""`kill -9` between two steps of a webhook's catch-up with a long log: it still receives every event, each once."""

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from ringback.domain.catch_up import STEP_EVENTS_MAX
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.ports import Transaction
from ringback.domain.principal import ANONYMOUS_PRINCIPAL
from tests.support.builders import make_event
from tests.support.clock import OffsetClock
from tests.support.processes import WAIT_SECONDS, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.stores import open_test_store
from tests.support.upstreams import ControlledUpstream, serving

STEP: Final = "CatchUpWorker.run_once.<locals>"
EVENTS: Final = 2 * STEP_EVENTS_MAX + 50


@pytest.mark.requirement("R35")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_kill_between_two_steps_of_a_catch_up_loses_nothing_and_repeats_nothing(
    *, after: bool, tmp_path: Path
) -> None:
    event_ids = await fill_log(tmp_path)
    async with serving(ControlledUpstream().app()) as upstream, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        webhook = {"url": receiver.url(), "cursor": encode_log_position(LogPosition(0))}
        async with running_process(**spec, unit=STEP, after=after) as doomed:
            await post_unless_killed(doomed.url, "/v1/webhooks", webhook)
            assert await doomed.wait_until_dead() == -9
        async with running_process(**spec):
            async with asyncio.timeout(WAIT_SECONDS):
                while len(parse_received_events(receiver)) < EVENTS:
                    receiver.arrived.clear()
                    await receiver.arrived.wait()

    assert parse_received_events(receiver) == event_ids


async def fill_log(folder: Path) -> set[str]:
    events = [make_event(principal=ANONYMOUS_PRINCIPAL, seq=seq) for seq in range(1, EVENTS + 1)]

    async def work(tx: Transaction) -> None:
        await tx.events.reserve_seqs(ANONYMOUS_PRINCIPAL, EVENTS)
        await tx.events.insert(events)

    async with open_test_store(folder, OffsetClock()) as store:
        await store.write(work)
    return {event.id for event in events}


def parse_received_events(receiver: Receiver) -> set[str]:
    return {orjson.loads(request.body)["eventId"] for request in receiver.requests}
