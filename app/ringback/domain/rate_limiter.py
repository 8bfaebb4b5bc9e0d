"""Rates of webhooks that ask for one: so many attempts a second, and no more than a second's worth at once."""

from datetime import datetime, timedelta
from typing import Final

from ringback.domain.ids import WebhookId

TRACKED_KEYS_MAX: Final = 10_000
"""Webhooks whose second is not over yet; beyond this those whose is are looked for and forgotten."""


class RateLimiter:
    """The generic cell rate algorithm (ITU-T I.371): for each webhook the instant until which its attempts are spent.

    It is kept for those webhooks alone that have used up some of their second.
    """

    def __init__(self) -> None:
        self._consumed_until: dict[WebhookId, datetime] = {}

    def available_permits(self, webhook_id: WebhookId, rate_per_second: float, *, now: datetime) -> int:
        """Attempts that may go now."""
        consumed = self._consumed_until.get(webhook_id, now) - now
        if consumed <= timedelta():
            self._consumed_until.pop(webhook_id, None)
            return _burst(rate_per_second)
        return max(0, _burst(rate_per_second) - _rounded_up(consumed / _interval(rate_per_second)))

    def consume_permit(self, webhook_id: WebhookId, rate_per_second: float, *, now: datetime) -> None:
        if len(self._consumed_until) >= TRACKED_KEYS_MAX:
            self._consumed_until = {each: until for each, until in self._consumed_until.items() if until > now}
        start = max(now, self._consumed_until.get(webhook_id, now))
        self._consumed_until[webhook_id] = start + _interval(rate_per_second)

    def refund_permit(self, webhook_id: WebhookId, rate_per_second: float) -> None:
        """An attempt that was spent is not made."""
        if webhook_id in self._consumed_until:
            self._consumed_until[webhook_id] -= _interval(rate_per_second)


def _burst(rate_per_second: float) -> int:
    return max(1, int(rate_per_second))


def _interval(rate_per_second: float) -> timedelta:
    return timedelta(seconds=1 / rate_per_second)


def _rounded_up(value: float) -> int:
    return -int(-value // 1)
