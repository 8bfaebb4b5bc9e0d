"""Signals: topics that are notified after a commit, and waiters that listen to them."""

from contextlib import AbstractContextManager
from typing import Protocol

from ringback.domain.ids import CallId
from ringback.domain.principal import Principal


class Waiter(Protocol):
    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until a topic was notified since the last `wait` returned; False if the time ran out first.

        A notification is a hint: the caller reads the store again, and also reads it now and then without a notification.
        """
        ...

    def notify(self) -> None:
        """Wake the waiter for another reason. One waiter is cheaper than a task for each reason."""
        ...


class Signals(Protocol):
    def listen(self, *topics: str) -> AbstractContextManager[Waiter]: ...


CALL_QUEUED_TOPIC = "calls"
"""Topic: a call was queued."""
DELIVERY_DUE_TOPIC = "deliveries"
"""Topic: a delivery became due."""


def call_changed_topic(call_id: CallId) -> str:
    """Topic: this call changed."""
    return f"call:{call_id}"


def call_cancel_topic(call_id: CallId) -> str:
    """Topic: a cancellation of this call was requested."""
    return f"cancel:{call_id}"


def call_answered_topic(call_id: CallId) -> str:
    """Topic: an input request of this call was answered."""
    return f"answer:{call_id}"


def log_appended_topic(principal: Principal) -> str:
    """Topic: this principal's log grew."""
    return f"log:{principal}"
