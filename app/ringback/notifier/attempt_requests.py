"""Notices that an owner requested an attempt at a webhook that waits for a permit.

The dispatcher does not query a waiting webhook again before the pauses of its breaker and its origin's are over, as far as this
process knows. Without the request it would learn of the end of a pause `RECHECK_AFTER_SECONDS` later.
"""

from collections.abc import Callable
from contextlib import ExitStack

from ringback.domain.ids import WebhookId
from ringback.domain.signals import Signals, webhook_due_topic


class AttemptRequestWatch:
    """One subscription for each watched webhook. A request ends it."""

    def __init__(self, signals: Signals, on_request: Callable[[WebhookId], None]) -> None:
        """`on_request` must not raise."""
        self._signals = signals
        self._on_request = on_request
        self._watched: dict[WebhookId, ExitStack] = {}

    def watch(self, webhook_id: WebhookId) -> None:
        if webhook_id not in self._watched:
            subscription = self._watched[webhook_id] = ExitStack()
            subscription.enter_context(
                self._signals.subscribe(lambda: self._handle_request(webhook_id), webhook_due_topic(webhook_id))
            )

    def keep_only(self, is_waiting: Callable[[WebhookId], bool]) -> None:
        """End the subscriptions of webhooks that wait no longer."""
        for webhook_id in [each for each in self._watched if not is_waiting(each)]:
            self._end(webhook_id)

    def _handle_request(self, webhook_id: WebhookId) -> None:
        self._end(webhook_id)
        self._on_request(webhook_id)

    def _end(self, webhook_id: WebhookId) -> None:
        self._watched.pop(webhook_id).close()
