"""Two nodes record failed attempts to one webhook at the same time: each level of its warning is raised once."""

from datetime import timedelta

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult, Delivery, DeliveryState
from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.notifier.attempts import AttemptRecorder, FinishedAttempt
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, ConcurrencyLimits
from ringback.notifier.permits import Permit, ReceiverKey
from tests.support.builders import make_attempt, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.interleaving import Node, Nodes

ORIGIN = "https://agent.example"


async def record_failure(node: Node, clock: FakeClock, delivery: Delivery) -> int:
    """Record one failed attempt as the dispatcher of this node does. Return the number of recorded attempts."""
    engine = Engine(node.store, clock)
    recorder = AttemptRecorder(
        recorder=engine.recorder,
        ids=engine.ids,
        limiter=ConcurrencyLimiter(ConcurrencyLimits()),
        random_fraction=lambda: 0.5,
    )
    finished = FinishedAttempt(
        delivery=delivery,
        attempt=make_attempt(delivery),
        result=AttemptResult(category=AttemptCategory.HTTP_5XX, status_code=500),
        origin=ORIGIN,
        permit=Permit(delivery.webhook_id, ReceiverKey(ALICE, ORIGIN)),
    )
    return len(await node.store.write(lambda tx: recorder.record_attempts(tx, [finished])))


async def test_a_level_that_two_nodes_reach_at_once_is_raised_once(nodes: Nodes, clock: FakeClock) -> None:
    failing = make_webhook(failing_since=clock.now() - timedelta(hours=50), last_error="http_5xx")
    watcher = make_webhook(url="https://watcher.example/", events=frozenset({EventName.WEBHOOK_FAILING}))
    leased = {
        "state": DeliveryState.LEASED,
        "lease_owner": "one",
        "lease_token": "held",
        "lease_until": clock.now() + timedelta(hours=1),
    }
    deliveries = [make_delivery(webhook_id=failing.id, seq=None, attempts=1, **leased) for _ in range(3)]
    await Engine(nodes.first.store, clock).insert_webhooks(failing, watcher)
    await nodes.first.store.write(lambda tx: tx.deliveries.insert(deliveries))

    recorded = await nodes.interleave(
        lambda node: record_failure(node, clock, deliveries[0]), lambda node: record_failure(node, clock, deliveries[1])
    )
    clock.advance(3600)
    await record_failure(nodes.second, clock, deliveries[2])

    assert recorded == (1, 1)
    where = EventFilter(name=EventName.WEBHOOK_FAILING)
    events = await nodes.first.store.read(lambda tx: tx.events.list_after(ALICE, 0, where, limit=10))
    assert [(event.data["webhook_id"], event.data["percent"]) for event in events] == [(failing.id, 50)]
    sent = [each for each in await Engine(nodes.first.store, clock).read_deliveries() if each.event_id == events[0].id]
    assert [each.webhook_id for each in sent] == [watcher.id]
