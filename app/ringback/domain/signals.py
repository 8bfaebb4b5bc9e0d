"""Signals: topics that are notified after a commit, and waiters that listen to them."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from ringback.domain.ids import CallId, WebhookId
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

    def subscribe(
        self, callback: Callable[[], None], *topics: str, also_after_losses: bool = True
    ) -> AbstractContextManager[None]:
        """Run the callback at each notification. It must not raise. A callback costs less than a waiting task.

        With `also_after_losses` it also runs when notifications from other nodes may have been lost, of whatever topic. A
        callback that reads the store needs that. One that does what the notification says must not run without it.
        """
        ...


CALL_QUEUED_TOPIC = "calls"
"""Topic: a call was queued."""
DELIVERY_DUE_TOPIC = "deliveries"
"""Topic: a delivery became due."""
API_KEYS_TOPIC = "api_keys"
"""Topic: an API key was created, rotated, revoked or erased."""
SEALING_KEYS_TOPIC = "sealing_keys"
"""Topic: a node has removed a key that it does not have."""


def webhook_due_topic(webhook_id: WebhookId) -> str:
    """Topic: the pause of this webhook's circuit breaker, or of its origin's, was ended upon request."""
    return f"due:{webhook_id}"


def upstream_tokens_topic(upstream: str, owner: Principal) -> str:
    """Topic: the tokens of this owner for this upstream were saved or deleted."""
    return f"upstream_tokens:{upstream}:{owner}"


def owner_erased_topic(owner: Principal) -> str:
    """Topic: all tokens of this owner were erased, with everything else of the principal."""
    return f"owner_erased:{owner}"


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


def mcp_session_topic(session_id: str) -> str:
    """Topic: what this legacy session agreed on changed, or the session has ended."""
    return f"mcp_session:{session_id}"


def request_cancelled_topic(principal: Principal, session_id: str, name: str) -> str:
    """Topic: a client cancelled this request of its own. A hash, because the client chooses the name."""
    return f"cancelled:{_hash(principal, session_id, name)}"


def answer_refused_topic(principal: Principal, request_id: str) -> str:
    """Topic: the client's answer to this elicitation reached another node, which could not store it. A hash, as above."""
    return f"answer_refused:{_hash(principal, request_id)}"


def _hash(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode(errors="surrogatepass")).hexdigest()[:32]
