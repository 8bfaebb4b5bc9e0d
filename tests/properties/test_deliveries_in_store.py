"""Deliveries, webhooks and their receivers through the real store, dispatcher and janitor, against a model of them.

The model is written in other words than the code: it keeps lists and numbers, and knows the rules as design has them. After
every step it says what each delivery and each webhook must look like; and no body has a place in the log
as safe that is not.
"""

import asyncio
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import Delivery, DeliveryKind
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook, WebhookState, with_state
from ringback.domain.webhook_rows import WebhookPart
from ringback.janitor.config import Retention
from ringback.notifier.backlog_limiter import BacklogLimiter
from ringback.notifier.concurrency_limiter import RECHECK_AFTER_SECONDS
from ringback.notifier.dispatcher import Dispatcher
from tests.support.builders import make_call, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import CONNECTION_REFUSED
from tests.support.stores import FullDisk, open_test_store

MINUTES: Final = (2, 30, 120, 600)
GIVE_UP: Final = 3600
HOURS_TO_SUSPENSION: Final = 96
PAUSES: Final = (15, 30, 60, 120, 300)
PROBE_INTERVAL_SECONDS: Final = 3600
EXAMPLES: Final = max(10, settings().max_examples // 4)
"""Each is forty steps through the real store."""
FAR_FUTURE: Final = Retention(result_seconds=1e9, event_seconds=1e9, tombstone_seconds=1e9)
SECONDS_MAX: Final = 9 * 86400
"""Time passes until then, in steps of four days at most: a recovery removes what has ended fourteen days ago."""
ANSWERS: Final = [204, 204, 500, 429, 404, 410, CONNECTION_REFUSED]


@dataclass
class DeliveryModel:
    """What the model knows of a delivery."""

    seq: int
    created_at: float
    state: str
    due: float
    attempts: int = 0
    gap: bool = False


@dataclass
class WebhookModel:
    """What the model knows of a webhook and its receiver, and what it has received."""

    webhook: Webhook
    state: str = "active"
    ever_answered: bool = False
    failing_since: float | None = None
    warned: int = 0
    warnings: list[int] = field(default_factory=list[int])
    row: int = 0
    openings: int = 0
    paused_until: float = 0.0
    missed_from_seq: int | None = None
    deliveries: dict[str, DeliveryModel] = field(default_factory=dict[str, DeliveryModel])
    answers: int | str = 204

    @property
    def trusted(self) -> bool:
        return self.ever_answered and self.failing_since is None

    def succeed(self) -> None:
        self.ever_answered, self.failing_since, self.warned = True, None, 0
        self.row = self.openings = 0
        self.paused_until = 0.0

    def fail(self, now: float) -> None:
        if self.failing_since is None:
            self.failing_since = now
        if self.state == "active" and now - self.failing_since >= HOURS_TO_SUSPENSION * 3600:
            self.state = "suspended"
        elif self.state == "active":
            self._warn((now - self.failing_since) / (HOURS_TO_SUSPENSION * 36))
        self.row += 1
        if now < self.paused_until or (self.state == "active" and self.openings == 0 and self.row < 5):
            return
        pause = PROBE_INTERVAL_SECONDS if self.state == "suspended" else PAUSES[min(self.openings, len(PAUSES) - 1)]
        self.openings += 1
        self.paused_until = now + pause

    def _warn(self, percent: float) -> None:
        level = max(each for each in (0, 50, 70, 90) if percent >= each)
        if level > self.warned:
            self.warned = level
            self.warnings.append(level)

    def lose(self, seq: int) -> None:
        self.missed_from_seq = seq if self.missed_from_seq is None else min(self.missed_from_seq, seq)


class UnlimitedBacklogs(BacklogLimiter):
    """The model has no rates after outages; `tests/interaction/engine/test_backlogs.py` tests them."""

    def limit_permits(self, key: str, permits: int, in_flight: int, *, now: datetime) -> int:
        del key, in_flight, now
        return permits


class DeliveriesInStore(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory(
            dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")
        )  # in memory, as other files of tests
        self.clock = FakeClock()
        self.opened = open_test_store(Path(self.folder.name), self.clock)
        self.store = FullDisk(self._run(self.opened.__aenter__()))
        self.engine = Engine(self.store, self.clock)
        self.dispatcher = self._make_dispatcher()
        self.janitor = self.engine.make_janitor(retention=FAR_FUTURE)
        self.boxes: dict[str, WebhookModel] = {}
        self.requests: list[tuple[WebhookModel, str]] = []
        """The webhooks and message ids of the requests of one step."""
        self.posted: list[tuple[WebhookModel, DeliveryModel]] = []
        self.bodies: dict[str, bytes] = {}

    def _make_dispatcher(self) -> Dispatcher:
        dispatcher = self.engine.make_dispatcher(self._receive)
        dispatcher._limiter.backlogs = UnlimitedBacklogs()  # pyright: ignore[reportPrivateUsage] - the model sends all
        return dispatcher

    def teardown(self) -> None:
        self._run(self.opened.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()

    @initialize(count=st.integers(1, 3))
    def register(self, count: int) -> None:
        for number in range(count):
            webhook = make_webhook(url=f"https://host-{number}.example/", retries="minutes")
            self._run(self.engine.insert_webhooks(webhook))
            self.boxes[webhook.id] = WebhookModel(webhook=webhook)

    # -- what happens --

    @rule()
    def end_a_call(self) -> None:
        self._run(self.engine.finish_call(make_call()))
        event = self._run(self.engine.read_events())[-1]
        for box in self.boxes.values():
            if box.state != "disabled":
                (born,) = [each for each in self._stored(box) if each.event_id == event.id]
                state = "held" if box.state == "suspended" else "pending"
                box.deliveries[born.id] = DeliveryModel(seq=event.seq, created_at=self._now, state=state, due=self._now)
                self._check_cursor(box, born)

    @rule(answers=st.sampled_from(ANSWERS), data=st.data())
    def receiver_changes(self, answers: int | str, data: st.DataObject) -> None:
        data.draw(st.sampled_from(list(self.boxes.values()))).answers = answers

    @precondition(lambda self: self._now < SECONDS_MAX)
    @rule(seconds=st.sampled_from([1, 5, 31, 121, 601, 3601, 20 * 3600, 48 * 3600, HOURS_TO_SUSPENSION * 3600]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def dispatch(self) -> None:
        """Claim once, send, settle."""
        expected = {box.webhook.id: self._claimable(box) for box in self.boxes.values()}
        self._give_up_behind_pauses()
        sent = self._send()
        assert sent == len(self.posted) == sum(map(len, expected.values()))
        for webhook_id, letters in expected.items():
            assert [letter for box, letter in self.posted if box.webhook.id == webhook_id] == letters
        self._settle()

    @precondition(lambda self: any(self._claimable(box) for box in self.boxes.values()))
    @rule()
    def expire_leases(self) -> None:
        """The disk is full when the outcomes are to be written; the leases run out, and the attempts count."""
        self._give_up_behind_pauses()
        self.store.full_at = "AttemptRecorder.record_attempts"
        self._send()
        self.store.full_at = None
        for _, letter in self.posted:
            letter.attempts += 1
            letter.state = "leased"
        self.clock.advance(31)
        self.run_janitor()

    @rule()
    def run_janitor(self) -> None:
        self._run(self.janitor.run_once())
        for box in self.boxes.values():
            self._hold(box)

    @rule(data=st.data(), on=st.booleans())
    def owner_switches(self, data: st.DataObject, on: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        """And some seconds pass: what a dispatcher knows of a lane that has no share it believes for so long."""
        box = data.draw(st.sampled_from(list(self.boxes.values())))
        wanted = WebhookState.ACTIVE if on else WebhookState.DISABLED

        async def switch(tx: Transaction) -> None:
            webhook = await tx.webhooks.get(box.webhook.id)
            assert webhook is not None
            await tx.webhooks.update(with_state(webhook, wanted), *WebhookPart)

        self._run(self.store.write(switch))
        if on and box.state != "active":
            box.failing_since, box.warned, box.row, box.openings, box.paused_until = None, 0, 0, 0, 0.0
        box.state = str(wanted)
        self.clock.advance(RECHECK_AFTER_SECONDS)

    @rule()
    def restart_service(self) -> None:
        """Nothing of what matters is in the dispatcher's memory."""
        self._run(self.engine.run_recovery())
        self.dispatcher = self._make_dispatcher()
        for box in self.boxes.values():
            self._hold(box)

    # -- what must be so --

    @invariant()
    def every_delivery_is_as_the_model_has_it(self) -> None:
        deliveries: list[Delivery] = self._run(self.engine.read_deliveries())
        for box in self.boxes.values():
            mine = [each for each in deliveries if each.webhook_id == box.webhook.id]
            stored = {each.id: (str(each.state), each.attempts) for each in mine}
            assert stored == {each: (letter.state, letter.attempts) for each, letter in box.deliveries.items()}

    @invariant()
    def every_webhook_is_as_the_model_has_it(self) -> None:
        for box in self.boxes.values():
            webhook = self._run(self.engine.read_webhook(box.webhook.id))
            paused = webhook.breaker.paused_until
            assert (str(webhook.state), webhook.missed_from) == (box.state, box.missed_from_seq)
            assert (webhook.failing_since is None) == (box.failing_since is None)
            assert (
                0.0 if paused is None else (paused - self.clock.now()).total_seconds() + self._now
            ) == pytest.approx(box.paused_until)

    @invariant()
    def each_level_of_a_failing_webhook_is_in_the_log_once(self) -> None:
        events = [each for each in self._run(self.engine.read_events()) if each.name == "webhook.failing"]
        for box in self.boxes.values():
            mine = [each.data["percent"] for each in events if each.data["webhook_id"] == box.webhook.id]
            assert mine == box.warnings

    def _send(self) -> int:
        """Lease once and send. What was sent is read afterwards: reads may end in another order than they began."""
        self.requests = []
        sent = self._run(self.dispatcher.run_once())
        self.posted = []
        for box, message_id in self.requests:
            (delivery,) = [each for each in self._stored(box) if each.message_id == message_id]
            self.posted.append((box, box.deliveries[delivery.id]))
        return sent

    # -- the model's rules --

    def _claimable(self, box: WebhookModel) -> list[DeliveryModel]:
        if box.state == "disabled" or self._now < box.paused_until:
            return []
        due = [each for each in box.deliveries.values() if each.state == "pending" and each.due <= self._now]
        due.sort(key=lambda letter: (letter.due, letter.seq))
        return due[: 32 if box.trusted else 1]

    def _give_up_behind_pauses(self) -> None:
        for box in self.boxes.values():
            pending = [each for each in box.deliveries.values() if each.state == "pending"]
            due = [each for each in pending if each.due <= self._now]
            for letter in pending if due and box.state == "disabled" else due:
                if box.state == "disabled":
                    letter.state = "held"
                elif self._now < box.paused_until and self._now - letter.created_at >= GIVE_UP:
                    self._give_up(box, letter)

    def _settle(self) -> None:
        for box in self.boxes.values():
            mine = [letter for of, letter in self.posted if of is box]
            for letter in mine:
                self._judge(box, letter)
            if mine and box.answers == 204:
                if box.state == "suspended":
                    box.state = "active"
                    self._release(box)
                self._add_gap(box)

    def _judge(self, box: WebhookModel, letter: DeliveryModel) -> None:
        letter.attempts += 1
        if box.answers == 204:
            letter.state = "delivered"
            box.succeed()
            return
        if not letter.gap:
            box.fail(self._now)
        step = MINUTES[letter.attempts - 1] if letter.attempts <= len(MINUTES) else None
        if box.answers == 410:
            letter.state = "dead"
            if not letter.gap:
                box.lose(letter.seq)
        elif step is None or self._now + step > letter.created_at + GIVE_UP:
            self._give_up(box, letter)
        else:
            letter.state, letter.due = "pending", self._now + step

    def _give_up(self, box: WebhookModel, letter: DeliveryModel) -> None:
        letter.state = "dead"
        untried = self._now - letter.created_at >= GIVE_UP and self._now < box.paused_until
        if not letter.gap or (box.answers == CONNECTION_REFUSED and not untried):
            box.lose(letter.seq)

    def _add_gap(self, box: WebhookModel) -> None:
        if box.missed_from_seq is None or box.state != "active":
            return
        (gap,) = [each for each in self._stored(box) if each.kind is DeliveryKind.GAP and each.id not in box.deliveries]
        assert decode_log_position(orjson.loads(gap.body)["cursor"]).seq == box.missed_from_seq - 1
        box.deliveries[gap.id] = DeliveryModel(
            seq=box.missed_from_seq, created_at=self._now, state="pending", due=self._now, gap=True
        )
        box.missed_from_seq = None

    def _hold(self, box: WebhookModel) -> None:
        for letter in box.deliveries.values():
            if letter.state == "leased":
                letter.state = "pending"
            if letter.state == "held" and self._now - letter.created_at >= GIVE_UP:
                letter.state = "dead"
                if not letter.gap:
                    box.lose(letter.seq)
        if box.state == "active":
            self._release(box)
        under_way = any(each.state == "pending" and each.due <= self._now for each in box.deliveries.values())
        # In the order of their ids, which is by chance that of two events within a millisecond.
        held = [each for _, each in sorted(box.deliveries.items()) if each.state == "held"]
        if box.state == "suspended" and self._now >= box.paused_until and held and not under_way:
            held[0].state, held[0].due = "pending", self._now

    def _release(self, box: WebhookModel) -> None:
        for letter in box.deliveries.values():
            if letter.state == "held":
                letter.state, letter.due = "pending", self._now

    def _check_cursor(self, box: WebhookModel, born: Delivery) -> None:
        """What a body calls safe was delivered or abandoned when it was made."""
        safe = decode_log_position(orjson.loads(born.body)["cursor"]).seq
        waiting = [each.seq for each in box.deliveries.values() if not each.gap and each.state in {"held", "pending"}]
        assert safe == min(waiting) - 1

    # -- the world --

    async def _receive(self, request: httpx.Request) -> httpx.Response:
        box = self.boxes[request.headers["x-mcp-subscription-id"]]
        message_id = request.headers["webhook-id"]
        assert self.bodies.setdefault(f"{box.webhook.id} {message_id}", request.content) == request.content
        self.requests.append((box, message_id))
        if box.answers == CONNECTION_REFUSED:
            raise httpx.ConnectError("nobody is there", request=request)
        return httpx.Response(int(box.answers))

    @property
    def _now(self) -> float:
        return self.clock.monotonic()

    def _stored(self, box: WebhookModel) -> list[Delivery]:
        return self._run(self._webhook_deliveries(box))

    async def _webhook_deliveries(self, box: WebhookModel) -> list[Delivery]:
        return [each for each in await self.engine.read_deliveries() if each.webhook_id == box.webhook.id]

    def _run(self, awaitable: Any) -> Any:
        """Without the signal handler of `Runner.run`, which takes as long as a read of the store."""
        return self.runner.get_loop().run_until_complete(awaitable)


TestDeliveries = pytest.mark.requirement("R27")(DeliveriesInStore.TestCase)
TestDeliveries.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
