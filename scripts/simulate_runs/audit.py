"""Checks what nodes do with leases at the moment when they do it.

A lease is ended by its owner, or by another node once it has run out; a callback is sent only under a lease that holds.
The rows at the end of the run do not show this.
"""

import sqlite3
from collections.abc import Mapping
from typing import Final

from ringback.domain.clock import epoch_milliseconds
from ringback.janitor import LEASE_GRACE_SECONDS
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.database import LeaseEnd, SharedDatabase
from scripts.simulate_runs.history import History
from scripts.simulate_runs.rules import CLOCK_ERROR_MILLISECONDS

_LEASE_OF_MESSAGE: Final = """
    SELECT lease_owner, lease_until, state FROM deliveries WHERE webhook_id = :webhook_id AND event_id = :event_id
"""


class LeaseAudit:
    """Of one process. `clock` is its estimate of the database's time."""

    def __init__(self, node: str, *, database: SharedDatabase, clock: NodeClock, history: History) -> None:
        self._node = node
        self._database = database
        self._clock = clock
        self._history = history

    def check_lease_end(self, end: LeaseEnd) -> None:
        if end.what == "start":
            self._check_start(end)
            return
        if end.owner == self._node or "cancelled" in {end.outcome, end.state}:
            return  # a client may end any call, and the owner of a webhook any delivery
        grace = LEASE_GRACE_SECONDS * 1000 if end.what == "call" else 0
        if end.until + grace > self._now() + CLOCK_ERROR_MILLISECONDS:
            left = (end.until - self._now()) / 1000
            self._history.broken_leases.append(
                f"{self._node} made {end.what} {end.id} {end.outcome or end.state}, which {end.owner} had leased for another "
                f"{left:.1f} s"
            )

    def _check_start(self, start: LeaseEnd) -> None:
        if self._history.is_paused(start.state):
            self._history.crossed_controls.append(f"{self._node} leased {start.id}, and {start.state} is paused")

    def check_send(self, headers: Mapping[str, str]) -> None:
        """Called when the node begins an attempt. Control envelopes have no event, and are not checked."""
        webhook_id, event_id = headers["x-mcp-subscription-id"], headers["webhook-id"]
        rows = self._database.query(_LEASE_OF_MESSAGE, webhook_id=webhook_id, event_id=event_id)
        if rows and not any(self._may_send(row) for row in rows):  # one row for each time that it is sent again
            self._history.broken_leases.append(
                f"{self._node} sent {event_id} to {webhook_id} without a lease: {[dict(row) for row in rows]}"
            )

    def _may_send(self, row: sqlite3.Row) -> bool:
        is_leased = row["lease_owner"] == self._node and row["lease_until"] > self._now() - CLOCK_ERROR_MILLISECONDS
        return is_leased or row["state"] == "cancelled"

    def _now(self) -> int:
        return epoch_milliseconds(self._clock.now())
