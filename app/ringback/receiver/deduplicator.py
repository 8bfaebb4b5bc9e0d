"""Handles each message once, even if copies arrive repeatedly or concurrently, in the memory of one process."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from ringback.key_locks import KeyLocks
from ringback.receiver.envelopes import Callback, find_text
from ringback.receiver.handling import Envelope
from ringback.signing.standard_webhooks import VerifiedMessage

KEY_SCOPE: Final = "key "
"""The beginning of the scope of messages whose body names no subscription, as with other servers: the key stands for it."""
FETCHED: Final = "*"
"""The scope of an event that was read from the log. Such an event and a delivered copy are the same message in every scope."""


EVENT_ID_LENGTH_MAX: Final = 256
"""As long as a `webhook-id` can be: ids are kept in memory."""


def identify_message(message: VerifiedMessage, envelope: Envelope) -> str:
    """The id that copies of a message share, in its scope: of an event the eventId, else the `webhook-id`.

    Usually the two are equal. Some servers give each message an id of its own, and the copy of its event in the log has none.
    """
    if isinstance(envelope, Callback) and len(envelope.event_id) <= EVENT_ID_LENGTH_MAX:
        return envelope.event_id
    return message.message_id


def compute_scope(message: VerifiedMessage, envelope: Envelope, *, owner_of_key: str | None = None) -> str:
    """Within which copies of a message are recognised. It depends on signed facts alone.

    A callback of Ringback names its subscription in `data.subscription_id`: one event is handled once for each subscription.
    For other messages, the secrets distinguish subscriptions: `owner_of_key` is the one whose secret has verified the message,
    if that is known, so that a copy with its next secret is one. The header `x-mcp-subscription-id` does not count: it is not
    signed, so a message that is sent again with another one is still a copy.
    """
    signed = find_text(envelope.data, "subscription_id") if isinstance(envelope, Callback) else None
    return signed or f"{KEY_SCOPE}{owner_of_key or message.key_fingerprint}"


class Deduplicator:
    """Remembers the `capacity` messages that were handled or repeated last.

    A message is known by its scope and its id: an event has the same id for all its subscriptions.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._scopes: OrderedDict[str, set[str]] = OrderedDict()
        """By the message's id, the scopes in which it was handled."""
        self._locks = KeyLocks()

    async def run_unless_handled(self, message_id: str, scope: str, work: Callable[[], Awaitable[None]]) -> None:
        """Await `work` unless it has succeeded for this message. If it raises, the next copy of the message tries again."""
        async with self._locks.hold(message_id):
            if not self._is_handled(message_id, scope):
                await work()
            self._record_handled(message_id, scope)

    def _is_handled(self, message_id: str, scope: str) -> bool:
        handled = self._scopes.get(message_id, set())
        return scope in handled or FETCHED in handled or (scope == FETCHED and bool(handled))

    def _record_handled(self, message_id: str, scope: str) -> None:
        handled = self._scopes.setdefault(message_id, set())
        self._size += scope not in handled
        handled.add(scope)
        self._scopes.move_to_end(message_id)
        while self._size > self._capacity:
            self._size -= len(self._scopes.popitem(last=False)[1])
