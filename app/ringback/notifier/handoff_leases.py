"""The leases with which fan-out inserts deliveries whose attempts begin right after the commit (`post_commit`).

All deliveries that one transaction inserts have one token, as those that one query leases. A token for each of them would take
one more id, and one more action for a rollback.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery
from ringback.domain.ids import DeliveryId, IdGenerator
from ringback.domain.ports import Transaction
from ringback.post_commit import DeliveryLease, UnusedLeases


@dataclass(frozen=True, slots=True)
class _GrantedLease:
    """The lease of the deliveries of one transaction."""

    tx: Transaction
    token: str
    until: datetime
    ids: list[DeliveryId]
    """Of the deliveries that have it."""


class HandoffLeases:
    def __init__(self, *, ids: IdGenerator, unused: UnusedLeases, owner: str, lease_seconds: float) -> None:
        self._ids = ids
        self._unused = unused
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._granted: _GrantedLease | None = None
        """Of the last transaction that got a lease and has not ended."""

    def grant_lease(self, tx: Transaction, hand_off: Callable[[Delivery], None]) -> DeliveryLease:
        """The lease of one delivery. `hand_off` takes the delivery once it is known."""
        granted = self._granted
        if granted is None or granted.tx is not tx:  # several transactions at once may have several tokens each
            granted = self._granted = self._begin_granting(tx)
        ids = granted.ids

        def hand_off_and_note(delivery: Delivery) -> None:
            ids.append(delivery.id)
            hand_off(delivery)

        return DeliveryLease(self._owner, granted.token, granted.until, hand_off_and_note)

    def _begin_granting(self, tx: Transaction) -> _GrantedLease:
        tx.on_commit(self._forget_transaction)
        tx.on_rollback(self._forget_transaction)
        ids: list[DeliveryId] = []
        token = self._unused.watch(tx, self._ids.new_lease_token(), ids)
        return _GrantedLease(tx, token, tx.now() + seconds(self._lease_seconds), ids)

    def _forget_transaction(self) -> None:
        """It would keep the bodies of its deliveries in memory. If another one has begun meanwhile, that gets a new token."""
        self._granted = None
