"""From the commit of an event straight into the hands of the dispatcher, without asking the store what is due.

    fan-out, in its unit ──lease──▶ dispatcher: a slot is free ──▶ the row is inserted as leased, and handed over
                                                └── none is free ──▶ the row is inserted as pending
    the unit was committed ──▶ the attempt begins, with the body that is still in memory
    it was not             ──▶ the slot is free again

A delivery that is born so is a leased one like any other: if the process dies, its lease runs out and it is sent again.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from ringback.domain.delivery import Delivery
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook


@dataclass(frozen=True, slots=True)
class HandoffLease:
    """What a delivery is inserted with if it is to be sent right after the commit."""

    owner: str
    token: str
    until: datetime
    hand_off: Callable[[Delivery], None]
    """To be told, in the same unit of work, which delivery the lease is for."""


GrantLease = Callable[[Transaction, Webhook], HandoffLease | None]


class PostCommitHandoff:
    """Shared by who records and who dispatches, in one process. While nobody dispatches everything is born pending."""

    def __init__(self) -> None:
        self._consumer: GrantLease | None = None

    def lease_delivery(self, tx: Transaction, webhook: Webhook) -> HandoffLease | None:
        return None if self._consumer is None else self._consumer(tx, webhook)

    @contextmanager
    def attach(self, consumer: GrantLease) -> Generator[None]:
        self._consumer = consumer
        try:
            yield
        finally:
            self._consumer = None
