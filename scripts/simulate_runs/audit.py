"""Checks what nodes do with leases at the moment when they do it.

A lease is ended by its owner, or by another node once it has run out; a callback is sent only under a lease that holds, or that
held until its delivery was cancelled or erased. The rows at the end of the run do not show this.
"""

import sqlite3
from collections.abc import Mapping
from typing import Final

from ringback.domain.clock import epoch_milliseconds
from ringback.janitor.recovery import LEASE_GRACE_SECONDS
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.database import LeaseEnd, SharedDatabase
from scripts.simulate_runs.history import History
from scripts.simulate_runs.rules import CLOCK_ERROR_MILLISECONDS

ENVELOPE_ID_PREFIX: Final = "msg_"
"""No event has such an id."""

_LEASES_OF_MESSAGE: Final = """
    SELECT lease_owner, lease_until, state FROM deliveries WHERE webhook_id = :webhook_id AND event_id = :event_id
    UNION ALL
    SELECT lease_owner, lease_until, 'revoked' FROM revoked_leases WHERE webhook_id = :webhook_id AND event_id = :event_id
"""


_OPEN_CALLS: Final = """
    SELECT count(*) FROM calls WHERE principal = :principal AND status IN ('working', 'input_required')
"""


class LeaseAudit:
    """Of one process. `clock` is its estimate of the database's time."""

    def __init__(
        self, node: str, *, database: SharedDatabase, clock: NodeClock, history: History, open_calls_max: int
    ) -> None:
        self._node = node
        self._database = database
        self._clock = clock
        self._history = history
        self._open_calls_max = open_calls_max

    def check_lease_end(self, end: LeaseEnd) -> None:
        """Called when the unit commits."""
        if end.what == "start":
            self._check_start(end)
            return
        if end.what == "new":
            self._check_quota(end)
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

    def _check_quota(self, new: LeaseEnd) -> None:
        ((count,),) = self._database.query(_OPEN_CALLS, principal=new.owner)
        if count > self._open_calls_max:
            self._history.exceeded_quotas.append(
                f"{new.owner} has {count} open calls of {self._open_calls_max} with {new.id}"
            )

    def check_send(self, headers: Mapping[str, str]) -> None:
        """Called when the node begins an attempt. Control envelopes have no event, and are not checked."""
        webhook_id, event_id = headers["x-mcp-subscription-id"], headers["webhook-id"]
        if event_id.startswith(ENVELOPE_ID_PREFIX):
            return
        rows = self._database.query(_LEASES_OF_MESSAGE, webhook_id=webhook_id, event_id=event_id)
        if not any(self._may_send(row) for row in rows):  # one row for each time that it is sent again
            self._history.broken_leases.append(
                f"{self._node} sent {event_id} to {webhook_id} without a lease: {[dict(row) for row in rows]}"
            )

    def _may_send(self, row: sqlite3.Row) -> bool:
        return row["lease_owner"] == self._node and row["lease_until"] > self._now() - CLOCK_ERROR_MILLISECONDS

    def _now(self) -> int:
        return epoch_milliseconds(self._clock.now())
