"""A delivery whose body cannot be read has no replay: it would have no body, also once the missing key is back."""

from collections.abc import Sequence

import pytest

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.errors import ContentUnreadable
from ringback.services.deliveries.replays import ReplayRequest
from tests.support.builders import make_delivery, make_verified_webhook
from tests.support.clock import FakeClock
from tests.support.databases import query_rows
from tests.support.engine import Engine
from tests.support.interleaving import CALLER, Nodes
from tests.support.whole_deliveries import list_whole_deliveries

DAMAGE = b"sealed with a key that this node does not have"


class Stage:
    """Two dead deliveries of one webhook. The body of the first cannot be read."""

    def __init__(self, nodes: Nodes, clock: FakeClock) -> None:
        self.services = nodes.first.services
        self.engine = Engine(nodes.first.store, clock)
        webhook = make_verified_webhook()
        ended = {"state": DeliveryState.DEAD, "finished_at": clock.now()}
        self.webhook = webhook
        self.unreadable, self.readable = (make_delivery(webhook_id=webhook.id, seq=seq, **ended) for seq in (1, 2))
        self._folder = nodes.folder
        self._sealed = b""

    async def prepare(self) -> None:
        await self.engine.insert_webhooks(self.webhook)
        await self.engine.insert_deliveries(self.unreadable, self.readable)
        ((self._sealed,),) = query_rows(
            self._folder, "SELECT body FROM bodies WHERE delivery_id = ?", self.unreadable.id
        )
        self._write_body(DAMAGE)

    def restore_key(self) -> None:
        self._write_body(self._sealed)

    def _write_body(self, body: bytes) -> None:
        statement = "UPDATE bodies SET body = ? WHERE delivery_id = ? RETURNING delivery_id"
        assert len(query_rows(self._folder, statement, body, self.unreadable.id)) == 1

    async def list_replays(self) -> Sequence[Delivery]:
        found = await self.engine.store.read(lambda tx: list_whole_deliveries(tx, CALLER.principal))
        return [each for each in found if each.generation > 1]


@pytest.fixture
async def stage(nodes: Nodes, clock: FakeClock) -> Stage:
    opened = Stage(nodes, clock)
    await opened.prepare()
    return opened


async def test_a_redelivery_is_refused_and_succeeds_once_the_key_is_back(stage: Stage) -> None:
    """Its copy had no body, and each later one was a copy of that: the callback was lost for good."""
    with pytest.raises(ContentUnreadable):
        await stage.services.replays.redeliver_delivery(CALLER, stage.unreadable.id)
    assert await stage.list_replays() == []

    stage.restore_key()
    await stage.services.replays.redeliver_delivery(CALLER, stage.unreadable.id)

    (replay,) = await stage.list_replays()
    assert (replay.event_id, replay.body) == (stage.unreadable.event_id, stage.unreadable.body)


async def test_a_replay_sends_the_others(stage: Stage) -> None:
    replayed = await stage.services.replays.replay_webhook(CALLER, stage.webhook.id, ReplayRequest(only_dead=True))

    assert (replayed.replayed, replayed.has_more) == (1, False)
    assert [each.event_id for each in await stage.list_replays()] == [stage.readable.event_id]


async def test_a_bulk_redelivery_skips_it(stage: Stage, clock: FakeClock) -> None:
    clock.advance(1)

    redelivered = await stage.services.bulk_redeliveries.redeliver(
        CALLER, RedeliveryFilter(), position=None, dry_run=False
    )

    assert (redelivered.redelivered, redelivered.skipped) == (1, 1)
    assert [each.event_id for each in await stage.list_replays()] == [stage.readable.event_id]
