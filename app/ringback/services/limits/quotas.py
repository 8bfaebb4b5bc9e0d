"""Quotas: limits for each principal, so that one principal cannot use up the service.

Rows are counted in the transaction that would add one, so concurrent requests cannot exceed a quota, on whichever node. Bytes
of arguments are counted so, too, but several nodes do not wait for each other: the calls that start within the same
milliseconds can exceed the limit. Results are counted when they are stored: a limit on result bytes is exceeded by the results
of the calls that run by then. Streams, requests of sessions, bulk requests and the rate of starts are counted in this process;
each node counts for itself.

One event has a delivery for each webhook that gets it, with a body that may contain the result: `delivery_bytes` counts these.

`event_bytes` limits what comes from outside into the log of a principal. Events that clients publish are refused above it, and
those of upstreams are lost, which readers learn as a gap. Progress has half of it: above that, a call shows its progress
without an event. Events that the service itself writes, as ends of calls, are small, and are never refused.
"""

import math
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.domain.event_subscriptions import EventSubscription
from ringback.domain.ids import KeyId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter, TokenBucket
from ringback.domain.usage import DELIVERY_BYTES_DEFAULT, STORED_BYTES_DEFAULT
from ringback.services.limits.pacing import BatchPace

K = TypeVar("K")

OPEN_CALLS_UNLOCKED: Final = 1_000
"""The last open calls of a quota are counted one unit after the other. Before them units count at the same time: so many calls
would have to start while one unit runs, for some milliseconds, to exceed the quota."""
BACKGROUND_START_CALLS_MAX: Final = 1_000
"""A principal with this many open calls starts its next ones as background work (`ringback.admission`)."""
BACKGROUND_START_SHARE_DIVISOR: Final = 2
"""Or with this share of its quota, if that is less."""
PROGRESS_SHARE_DIVISOR: Final = 2
"""Progress of calls gets no events above this share of `event_bytes` or `delivery_bytes`."""
ROW_QUOTA_RETRY_AFTER_SECONDS: Final = 30
"""The time at which rows are deleted is unknown. 30 s keeps both the wait and the number of retries small."""
BULK_REQUEST_RETRY_AFTER_SECONDS: Final = 5
"""A bulk request of a thousand rows takes a second or two."""
SESSION_REQUESTS_MAX: Final = 10_000
"""Requests of one principal in legacy sessions that are handled at once: as many as the service has connections, and more. The
handler of a client that has left goes on for up to a minute, so the limit on connections does not bound them."""
SESSION_REQUEST_RETRY_AFTER_SECONDS: Final = 5
"""Most are handled within some seconds."""
STREAM_RETRY_AFTER_SECONDS: Final = 5
"""The service notices a lost stream at its next frame, at the latest after a heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The limits of one principal. The defaults fit a busy agent back end; reaching one usually means a bug."""

    open_calls: int = 10_000
    """Queued and running calls: the number that one process is designed to hold for all principals together."""
    stored_calls: int = 10_000_000
    """Open calls, and those that have ended and not expired. Each has some kilobytes beside its arguments and result: its row,
    its events, and the webhook of its callback."""
    result_bytes: int = STORED_BYTES_DEFAULT
    """Bytes of stored results. A result is never refused; above the limit, new calls are."""
    argument_bytes: int = STORED_BYTES_DEFAULT
    """Bytes of the arguments and `_meta` of stored calls, open and ended."""
    event_bytes: int = STORED_BYTES_DEFAULT
    """Bytes of `data` of published events, events of upstreams and progress in the principal's log."""
    delivery_bytes: int = DELIVERY_BYTES_DEFAULT
    """Bytes of the bodies of stored deliveries, open and ended. A delivery is never refused; above the limit, what leads to
    deliveries is: calls, published events, tests, and requests to send earlier events or deliveries again."""
    webhooks: int = 1_000
    """Registered webhooks. The callback of a call ends with its call, so `open_calls` limits callbacks."""
    subscriptions: int = 10_000
    """Live event subscriptions of MCP clients. Some clients subscribe with a new URL each time and never unsubscribe; what they
    leave behind ends within a day."""
    streams: int = 100
    starts_per_minute: int = 60_000
    """Requests that start work: calls, tests, replays. Only a runaway loop sends a thousand per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """The limits of one API key, within the quotas of its principal. None: no limit of its own."""

    streams: int | None = None
    starts_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaOverrides:
    """The quotas of single principals and keys, in the place of the service's defaults."""

    principals: Mapping[Principal, Quotas] = field(default_factory=dict[Principal, Quotas])
    keys: Mapping[KeyId, KeyLimits] = field(default_factory=dict[KeyId, KeyLimits])


_NO_LIMITS: Final = KeyLimits()


class QuotaEnforcer:
    def __init__(self, quotas: Quotas, *, clock: Clock, overrides: QuotaOverrides | None = None) -> None:
        """`quotas` are those of every principal without an override."""
        self._quotas = quotas
        self._overrides = overrides or QuotaOverrides()
        self._clock = clock
        self._starts: RateLimiter[Principal] = RateLimiter()
        self._key_starts: RateLimiter[KeyId] = RateLimiter()
        self._streams: Counter[Principal] = Counter()
        self._key_streams: Counter[KeyId] = Counter()
        self._bulk_requests: Counter[Principal] = Counter()
        self._session_requests: Counter[Principal] = Counter()
        self.session_publishers: Counter[Principal] = Counter()
        """What runs for the legacy MCP sessions of each principal (`mcp_server.session_notifications`)."""
        self._with_many_calls: set[Principal] = set()
        """Principals whose last start found so many open calls that the next one is background work."""

    def replace_overrides(self, overrides: QuotaOverrides) -> bool:
        """They apply from now on, to what is used already as well. True if they differ from those before."""
        is_changed = overrides != self._overrides
        self._overrides = overrides
        return is_changed

    def get_quotas(self, principal: Principal) -> Quotas:
        return self._overrides.principals.get(principal, self._quotas)

    def get_key_limits(self, key_id: KeyId | None) -> KeyLimits:
        return _NO_LIMITS if key_id is None else self._overrides.keys.get(key_id, _NO_LIMITS)

    async def require_call_quota(
        self, tx: Transaction, principal: Principal, *, count: int = 1, argument_bytes: int
    ) -> None:
        """Raise `QuotaExceeded` unless `count` more calls, with their arguments and results, fit into the quotas."""
        quotas = self.get_quotas(principal)
        used = await tx.usage.get_usage(principal)
        self._note_open_calls(principal, used.open_calls, quotas.open_calls)
        if used.open_calls + count > quotas.open_calls - OPEN_CALLS_UNLOCKED:
            used = await tx.usage.get_usage(principal, lock=True)
        if count and used.open_calls + count > quotas.open_calls:  # a lowered quota refuses no repeated request
            raise _quota_exceeded("open_calls", quotas.open_calls, "Wait until calls end, or cancel calls.")
        if count and used.stored_calls + count > quotas.stored_calls:
            raise _quota_exceeded(
                "stored_calls", quotas.stored_calls, "Calls that have ended are deleted when they expire or are erased."
            )
        if count and used.result_bytes >= quotas.result_bytes:
            raise _quota_exceeded("result_bytes", quotas.result_bytes, "Stored results are deleted when they expire.")
        if count:
            _require_delivery_bytes(used.delivery_bytes, quotas.delivery_bytes)
        if count and used.argument_bytes + argument_bytes > quotas.argument_bytes:
            raise _byte_quota_exceeded(
                "argument_bytes",
                quotas.argument_bytes,
                used.argument_bytes,
                argument_bytes,
                "Arguments are deleted when their calls expire or are erased. Send large data by reference.",
            )

    async def require_event_quota(self, tx: Transaction, principal: Principal, byte_count: int) -> None:
        """Raise `QuotaExceeded` unless events with these bytes of `data` fit. The caller holds the lock of the log."""
        quotas, used = self.get_quotas(principal), await tx.usage.get_log_usage(principal)
        _require_delivery_bytes(used.delivery_bytes, quotas.delivery_bytes)
        if used.event_bytes + byte_count > quotas.event_bytes:
            raise _byte_quota_exceeded(
                "event_bytes",
                quotas.event_bytes,
                used.event_bytes,
                byte_count,
                "Events are deleted when they expire. Publish references to large data.",
            )

    async def require_delivery_quota(self, tx: Transaction, principal: Principal) -> None:
        """Raise `QuotaExceeded` if no more deliveries may be made on request."""
        used = await tx.usage.get_log_usage(principal)
        _require_delivery_bytes(used.delivery_bytes, self.get_quotas(principal).delivery_bytes)

    async def has_free_delivery_quota(self, tx: Transaction, principal: Principal) -> bool:
        """Whether more deliveries may be made on request."""
        used = await tx.usage.get_log_usage(principal)
        return used.delivery_bytes < self.get_quotas(principal).delivery_bytes

    async def has_free_event_quota(self, tx: Transaction, principal: Principal) -> bool:
        """Whether events of upstreams, and their deliveries, fit into the principal's quotas: the next ones may exceed them."""
        return await self._has_free_log_quotas(tx, principal, share_divisor=1)

    async def has_free_progress_quota(self, tx: Transaction, principal: Principal) -> bool:
        """Whether progress still gets events. It leaves a part of the quotas to events that are nowhere else."""
        return await self._has_free_log_quotas(tx, principal, share_divisor=PROGRESS_SHARE_DIVISOR)

    async def _has_free_log_quotas(self, tx: Transaction, principal: Principal, *, share_divisor: int) -> bool:
        quotas, used = self.get_quotas(principal), await tx.usage.get_log_usage(principal)
        return (
            used.event_bytes < quotas.event_bytes // share_divisor
            and used.delivery_bytes < quotas.delivery_bytes // share_divisor
        )

    def has_many_open_calls(self, principal: Principal) -> bool:
        """Whether the principal had many open calls at its last start in this process.

        A start that exceeds a quota is one of them: it waits for the ends that free the quota, if the service writes them soon.
        With priority, the refused starts of 64 clients delayed the ends, which more than doubled without it (measured).
        """
        return principal in self._with_many_calls

    def _note_open_calls(self, principal: Principal, count: int, limit: int) -> None:
        share = max(1, limit // BACKGROUND_START_SHARE_DIVISOR)
        if count >= min(BACKGROUND_START_CALLS_MAX, share):
            self._with_many_calls.add(principal)
        else:
            self._with_many_calls.discard(principal)

    async def require_webhook_quota(self, tx: Transaction, principal: Principal) -> None:
        limit = self.get_quotas(principal).webhooks
        if await tx.usage.count_webhooks(principal, limit=limit) >= limit:
            raise _quota_exceeded("webhooks", limit, "Remove webhooks: DELETE /v1/webhooks/{id}")

    async def require_event_subscription_quota(
        self, tx: Transaction, principal: Principal, subscription: EventSubscription | None
    ) -> None:
        """`subscription` is the row with the same key. One that has not ended is counted already: its client renews it."""
        if subscription is not None and subscription.ended_at is None:
            return
        limit = self.get_quotas(principal).subscriptions
        if await tx.subscriptions.count_live(principal) >= limit:
            raise _quota_exceeded("subscriptions", limit, "Unsubscribe from events, or let subscriptions expire.")

    def acquire_start(self, principal: Principal, *, key_id: KeyId | None = None, count: int = 1) -> None:
        """Use `count` starts, or raise `QuotaExceeded` with the seconds until as many are free."""
        now = self._clock.monotonic()
        limit, key_limit = self.get_quotas(principal).starts_per_minute, self.get_key_limits(key_id).starts_per_minute
        buckets = [(_get_start_bucket(self._starts, principal, limit, now), limit, "starts_per_minute")]
        if key_id is not None and key_limit is not None:
            key_bucket = _get_start_bucket(self._key_starts, key_id, key_limit, now)
            buckets.append((key_bucket, key_limit, "key_starts_per_minute"))
        for bucket, most, quota in buckets:
            _require_starts(bucket, most, quota, now=now, count=count)
        for bucket, _, _ in buckets:
            bucket.consume_permit(now, count)

    def count_free_starts(self, principal: Principal) -> int:
        """The starts that the principal may use at once."""
        now = self._clock.monotonic()
        limit = self.get_quotas(principal).starts_per_minute
        return _get_start_bucket(self._starts, principal, limit, now).available_permits(now)

    def count_free_key_starts(self, key_id: KeyId, limit: int) -> int:
        now = self._clock.monotonic()
        return _get_start_bucket(self._key_starts, key_id, limit, now).available_permits(now)

    @contextmanager
    def open_stream(self, principal: Principal, *, key_id: KeyId | None = None) -> Generator[None]:
        """Count one stream of the principal, and of its key, until the context ends."""
        _require_stream("streams", self._streams[principal], self.get_quotas(principal).streams)
        key_limit = self.get_key_limits(key_id).streams
        if key_id is not None and key_limit is not None:
            _require_stream("key_streams", self._key_streams[key_id], key_limit)
        with _counting(self._streams, principal):
            if key_id is None:
                yield
                return
            with _counting(self._key_streams, key_id):
                yield

    @contextmanager
    def open_bulk_request(self, principal: Principal) -> Generator[None]:
        """Count a redelivery or cancellation by filter until the context ends. A principal has at most one at a time.

        Two that overlap select the same rows: each would wait for the locks of the other, and both hold connections meanwhile.
        """
        if self._bulk_requests[principal]:
            raise QuotaExceeded(
                "Another bulk request of yours (a redelivery or cancellation by filter) has not ended. Nothing was done. Wait "
                "for its response, then send this one.",
                retry_after_seconds=BULK_REQUEST_RETRY_AFTER_SECONDS,
                quota="bulk_requests",
                limit=1,
            )
        with _counting(self._bulk_requests, principal):
            yield

    @contextmanager
    def handle_session_request(self, principal: Principal) -> Generator[None]:
        """Count a request of a legacy session until the context ends."""
        if self._session_requests[principal] >= SESSION_REQUESTS_MAX:
            raise QuotaExceeded(
                f"{SESSION_REQUESTS_MAX} requests of your sessions are handled now, also for clients that have left. Nothing "
                "was done. Wait until some have ended.",
                retry_after_seconds=SESSION_REQUEST_RETRY_AFTER_SECONDS,
                quota="session_requests",
                limit=SESSION_REQUESTS_MAX,
            )
        with _counting(self._session_requests, principal):
            yield

    def pace_batches(self) -> BatchPace:
        """The pace of one request that has many batches."""
        return BatchPace(self._clock)

    def count_streams(self, principal: Principal) -> int:
        return self._streams[principal]

    def count_key_streams(self, key_id: KeyId) -> int:
        return self._key_streams[key_id]

    @property
    def rate_limiter_count(self) -> int:
        return len(self._starts)

    @property
    def open_stream_count(self) -> int:
        return self._streams.total()


def _get_start_bucket(limiter: RateLimiter[K], owner: K, limit: int, now: float) -> TokenBucket:
    return limiter.get_bucket(owner, RateLimit(per_second=limit / 60, burst=limit), now=now)


def _require_starts(bucket: TokenBucket, limit: int, quota: str, *, now: float, count: int) -> None:
    """Raise `QuotaExceeded` unless `count` starts are free. Uses none."""
    if count > limit:
        raise _quota_exceeded(quota, limit, f"Start fewer than {count} calls in one request.")
    if (wait := bucket.wait_seconds(now, count)) > 0:
        raise _quota_exceeded(quota, limit, "Send fewer starts per minute.", retry_after_seconds=math.ceil(wait))


def _require_stream(quota: str, used: int, limit: int) -> None:
    if used >= limit:
        raise _quota_exceeded(quota, limit, "Close a stream first.", retry_after_seconds=STREAM_RETRY_AFTER_SECONDS)


@contextmanager
def _counting(counts: Counter[K], owner: K) -> Generator[None]:
    counts[owner] += 1
    try:
        yield
    finally:
        counts[owner] -= 1
        if not counts[owner]:
            del counts[owner]


def _quota_exceeded(
    quota: str, limit: int, advice: str, *, retry_after_seconds: int = ROW_QUOTA_RETRY_AFTER_SECONDS
) -> QuotaExceeded:
    return QuotaExceeded(
        f"Your quota '{quota}' of {limit} is used up. Nothing was done. {advice}",
        retry_after_seconds=retry_after_seconds,
        quota=quota,
        limit=limit,
    )


def _require_delivery_bytes(used: int, limit: int) -> None:
    if used >= limit:
        raise _quota_exceeded(
            "delivery_bytes",
            limit,
            "Deliveries are deleted when they expire. Use fewer webhooks for the same events, or webhooks without results.",
        )


def _byte_quota_exceeded(quota: str, limit: int, used: int, more: int, advice: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"Your quota '{quota}' of {limit} has no room for {more} bytes: {used} are used. Nothing was done. {advice}",
        retry_after_seconds=ROW_QUOTA_RETRY_AFTER_SECONDS,
        quota=quota,
        limit=limit,
    )
