"""What a neighbour stores costs others nothing: a request does the same work beside few and many subscriptions.

Counted in instructions of SQLite's virtual machine, through the gateway; the conformance tests do it for each statement.
"""

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ringback.storage.sqlite import database
from tests.interaction.gateway_events_hostile.conftest import (
    FINISHED,
    NO_QUOTA,
    EventsGate,
    make_subscription,
    running_events_gate,
)
from tests.support.mcp_wire import Json
from tests.support.receivers import Receiver
from tests.support.vm_steps import VmSteps, counting_vm_steps

pytestmark = [pytest.mark.sqlite_only("counts the steps of SQLite's virtual machine"), pytest.mark.requirement("R25")]

FEW, MANY, MANY_DEEP = 10, 1_000, 100_000
ADDITIONAL_SHARE_MAX: Final = 1.25
"""Deeper trees and page splits, not more rows: a scan of the many would be a hundred times as much."""
ADDITIONAL_STEPS_MAX: Final = 1_500
ROUNDS: Final = 3
"""The least of them counts: on a busy machine a chore of the service may run during a request, and a scan is in every round."""
_COPIES: Final = """
WITH RECURSIVE numbers (number) AS (SELECT :first UNION ALL SELECT number + 1 FROM numbers WHERE number < :last)
INSERT INTO {table} ({columns}) SELECT {values} FROM numbers CROSS JOIN {table} WHERE id = :id
"""


@dataclass(slots=True)
class Street:
    """A gateway that counts its database's work."""

    gate: EventsGate
    steps: list[VmSteps]
    added: int = 0

    async def count_steps(self, request: Callable[[], Awaitable[object]]) -> int:
        before = sum(each.count for each in self.steps)
        await request()
        return sum(each.count for each in self.steps) - before

    def add_subscriptions(self, original_id: str, count: int) -> None:
        """Copy a subscription so often, each for a session of its own."""
        first, self.added = self.added + 1, self.added + count
        with closing(sqlite3.connect(self.gate.folder / "ringback.db", timeout=60)) as connection, connection:
            for table in ("webhooks", "subscriptions"):
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                own = {"id": "printf('sub_%032x', number)", "client_session_id": "'session-' || number"}
                values = [own.get(name, f'"{name}"') for name in names]
                columns = ", ".join(f'"{name}"' for name in names)
                statement = _COPIES.format(table=table, columns=columns, values=", ".join(values))
                connection.execute(statement, {"first": first, "last": self.added, "id": original_id})


@pytest.fixture
async def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Street]:
    open_connection = database.open_connection
    with ExitStack() as stack:
        steps: list[VmSteps] = []

        def open_and_count(path: Path, *, lock_wait_seconds: float) -> sqlite3.Connection:
            connection = open_connection(path, lock_wait_seconds=lock_wait_seconds)
            steps.append(stack.enter_context(counting_vm_steps(connection)))
            return connection

        monkeypatch.setattr(database, "open_connection", open_and_count)
        async with running_events_gate(tmp_path, quota_subscriptions=NO_QUOTA) as gate:
            yield Street(gate, steps)


def make_requests(gate: EventsGate, receiver: Receiver) -> Mapping[str, Callable[[], Awaitable[object]]]:
    """Requests of alice, each of which can be repeated: in this order, a round ends as it began."""
    interest: Json = {"name": FINISHED, "arguments": {"client_session_id": "mine"}, "cursor": None}
    subscription = make_subscription(receiver.url("/alice"), arguments={"client_session_id": "mine"})
    return {
        "subscribe": lambda: gate.send("events/subscribe", subscription),
        "refresh": lambda: gate.send("events/subscribe", subscription),
        "poll": lambda: gate.send("events/poll", interest),
        "call": lambda: gate.end_call(client_session_id="another"),
        "unsubscribe": lambda: gate.send("events/unsubscribe", subscription),
    }


@pytest.mark.parametrize("neighbour", ["mallory", "alice"])
async def test_requests_cost_the_same_beside_few_and_many_subscriptions(
    street: Street, receiver: Receiver, neighbour: str, *, deep: bool
) -> None:
    """Also if the subscriptions are the principal's own."""
    crowd = make_subscription(receiver.url("/crowd"), arguments={"client_session_id": "crowd"})
    granted = await street.gate.send("events/subscribe", crowd, principal=neighbour)
    requests = make_requests(street.gate, receiver)

    async def count_round() -> dict[str, int]:
        return {name: await street.count_steps(request) for name, request in requests.items()}

    async def count_least() -> dict[str, int]:
        rounds = [await count_round() for _ in range(ROUNDS)]
        return {name: min(each[name] for each in rounds) for name in requests}

    await count_round()  # the first round makes rows that later ones change
    street.add_subscriptions(granted["result"]["id"], FEW)
    few = await count_least()
    street.add_subscriptions(granted["result"]["id"], MANY_DEEP if deep else MANY)
    many = await count_least()

    grown = {name: (few[name], many[name]) for name in requests if is_grown(few[name], many[name])}
    assert grown == {}


def is_grown(few: int, many: int) -> bool:
    return many > ADDITIONAL_SHARE_MAX * few + ADDITIONAL_STEPS_MAX
