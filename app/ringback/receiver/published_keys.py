"""The public keys that a service publishes, as the secrets of a receiver: fetched, kept for five minutes, and fetched again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from ringback.receiver.handling import NotReady
from ringback.receiver.verification import current_time, public_keys_from_jwks

FRESH_AGE_MAX: Final = timedelta(minutes=5)
"""How long fetched keys are used without fetching again. The service lets caches keep them for an hour."""
STALE_MAX: Final = timedelta(days=1)
"""How long they are used while fetching fails."""
FETCH_SPACING: Final = timedelta(seconds=10)
"""The shortest time between two fetches: forged requests must not cause one each."""
FETCH_SECONDS_MAX: Final = 8.0
"""Ringback waits ten seconds for the response to a callback. A fetch that hung for ever would let no other one begin."""
KEYS_RETRY_SECONDS: Final = 30.0
"""When the sender should try again after the keys could not be fetched."""

log = logging.getLogger(__name__)


class PublishedKeys:
    """A source of public keys for `ReceiverApp(PublishedKeys(fetch))`.

    `fetch` returns the key set, for instance the content of `/.well-known/mcp-webhook-jwks.json`. While a service rotates its
    keys it signs with both, so keys that are some minutes old verify. Without keys the sender gets 503 and retries. While one
    request fetches, others use the keys that are there. A fetch that takes more than eight seconds has failed.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[bytes | str | Mapping[str, Any]]],
        *,
        clock: Callable[[], datetime] = current_time,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[str] = ()
        self._fetched_at: datetime | None = None
        self._tried_at: datetime | None = None
        self._fetching = asyncio.Lock()

    async def __call__(self, _subscription_id: str | None = None) -> Sequence[str]:
        if not self._is_within(self._fetched_at, FRESH_AGE_MAX) and not (
            self._are_usable() and self._fetching.locked()
        ):
            async with self._fetching:
                await self._refresh()
        if not self._are_usable():
            raise NotReady(KEYS_RETRY_SECONDS, reason="The sender's public keys cannot be fetched.")
        return self._keys

    async def _refresh(self) -> None:
        if self._is_within(self._fetched_at, FRESH_AGE_MAX) or self._is_within(self._tried_at, FETCH_SPACING):
            return
        self._tried_at = self._clock()
        try:
            async with asyncio.timeout(FETCH_SECONDS_MAX):
                document = await self._fetch()
            self._keys = public_keys_from_jwks(document)
        except Exception as error:  # noqa: BLE001 - the boundary to the owner's function
            log.warning("The sender's public keys could not be fetched: %r", error)
        else:
            self._fetched_at = self._tried_at

    def _are_usable(self) -> bool:
        return self._fetched_at is not None and self._clock() - self._fetched_at < STALE_MAX

    def _is_within(self, instant: datetime | None, age: timedelta) -> bool:
        """Whether the instant is not longer ago. One in the future is of a clock that was ahead: it says nothing."""
        return instant is not None and timedelta(0) <= self._clock() - instant < age
