"""Who waits for what: topics that ring after a commit, and the bells of those who listen."""

from contextlib import AbstractContextManager
from typing import Protocol

from ringback.domain.ids import CallId
from ringback.domain.principal import Principal


class Waiter(Protocol):
    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until a topic rang since the last `wait` returned; False when the time ran out first.

        A hint, never the truth: whoever is woken looks at the store again, and whoever waits also looks now and then.
        """
        ...

    def notify(self) -> None:
        """Wake its owner for anything else that happened: one bell is cheaper than a task for each thing to wait for."""
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
    """Topic: this call's cancellation was asked for."""
    return f"cancel:{call_id}"


def call_answered_topic(call_id: CallId) -> str:
    """Topic: one of this call's questions was answered."""
    return f"answer:{call_id}"


def log_appended_topic(principal: Principal) -> str:
    """Topic: this principal's log grew."""
    return f"log:{principal}"
