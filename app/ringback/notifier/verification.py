"""The rules by which a callback URL is proven: an earlier proof, the operator's allowlist, a published receiver list.

    is_proven                proven to this principal within `PROOF_VALID_SECONDS`
    CallbackAllowlist        URL prefixes that the operator trusts; no challenge
    PublishedReceiverLists   path prefixes that an origin publishes; checked after a failed challenge
    challenge_delay_seconds  the rate limits of challenges, for each origin and each principal
    accept_proof             the state change after a proof

The verifier sends the challenges; `services.webhooks.verification` decides which webhooks need one. A prefix ends at the end of
a path segment: `/hooks` covers `/hooks` and `/hooks/a`, not `/hooks-of-others`. A path with dot segments, which servers may
resolve differently, is covered only by the prefix `/`.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from urllib.parse import unquote

from ringback.domain import jsontext
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.verification import (
    CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX,
    CHALLENGES_PER_ORIGIN_MAX,
    CHALLENGES_PER_PRINCIPAL_MAX,
    PROOF_VALID_SECONDS,
    Challenge,
    RecentChallenges,
    challenge_ended_topic,
    seconds_until_below_limit,
)
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.http.target import Target, TargetPolicy, parse_target

RECEIVER_LIST_PATH: Final = "/.well-known/mcp-webhook-receiver.json"
"""Where an origin lists the path prefixes of its receivers: `{"receivers": ["/hooks/"]}` (mcp-events §8)."""
RECEIVER_LIST_CACHE_SECONDS: Final = 600.0
"""A list, or its absence, is cached for this time: a change takes effect within ten minutes."""
RECEIVER_LIST_FAILURE_CACHE_SECONDS: Final = 10.0
"""An origin that failed to respond, or has a failure of its own (5xx), did not say that it has no list."""
RECEIVER_LIST_CACHE_MAX: Final = 1_000
"""Origins in the cache; a list has at most 16 KiB and is mostly empty."""
RECEIVER_PREFIXES_MAX: Final = 100
RECEIVER_LIST_TIMEOUT_SECONDS: Final = 5.0

_SEGMENT_SEPARATORS: Final = re.compile(r"[/\\]")


def prefix_covers_path(prefix: str, path: str) -> bool:
    """Whether the path prefix covers a request to `path`, which may have a query."""
    path = path.partition("?")[0]
    if prefix == "/":
        return True
    is_within = path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
    return is_within and not _has_dot_segment(path)


def _has_dot_segment(path: str) -> bool:
    """Whether a server could read `.` or `..` in it: dots may be percent-encoded and have parameters (`..;a=1`)."""
    segments = _SEGMENT_SEPARATORS.split(unquote(unquote(path)))
    return any(segment.partition(";")[0] in {".", ".."} for segment in segments)


class CallbackAllowlist:
    """URL prefixes that the operator trusts (RINGBACK_CALLBACK_ALLOWLIST)."""

    def __init__(self, prefixes: Sequence[str], policy: TargetPolicy) -> None:
        """Raises `InvalidCallbackUrl` for a prefix that no callback URL can have."""
        self._prefixes = [parse_target(prefix, policy) for prefix in prefixes]
        for prefix in self._prefixes:
            if "?" in prefix.path or _has_dot_segment(prefix.path):
                raise InvalidCallbackUrl(f"{prefix.url}: a prefix has no query, and no dots for a segment.")

    def allows_target(self, target: Target) -> bool:
        return any(
            target.origin == prefix.origin and prefix_covers_path(prefix.path, target.path) for prefix in self._prefixes
        )


@dataclass(frozen=True, slots=True)
class _CachedReceiverList:
    prefixes: tuple[str, ...]
    expires_at: float


class PublishedReceiverLists:
    """The receiver lists of origins, fetched with the sender of callbacks and cached."""

    def __init__(self, requester: HttpRequester, *, clock: Clock, policy: TargetPolicy) -> None:
        self._requester = requester
        self._clock = clock
        self._policy = policy
        self._cache: OrderedDict[str, _CachedReceiverList] = OrderedDict()

    async def lists_target(self, target: Target, principal: Principal = NO_PRINCIPAL) -> bool:
        """Whether the list of the target's origin covers it; a lookup counts against the limit of `principal`."""
        now = self._clock.monotonic()
        cached = self._cache.get(target.origin)
        if cached is None or cached.expires_at <= now:
            cached = await self._fetch_list(target, principal, now=now)
            self._cache_list(target.origin, cached)
        return any(prefix_covers_path(prefix, target.path) for prefix in cached.prefixes)

    async def _fetch_list(self, target: Target, principal: Principal, *, now: float) -> _CachedReceiverList:
        document = parse_target(target.origin + RECEIVER_LIST_PATH, self._policy)
        result, body = await self._requester.send_request(
            "GET",
            document,
            {"accept": "application/json"},
            b"",
            principal=principal,
            deadline_seconds=RECEIVER_LIST_TIMEOUT_SECONDS,
        )
        prefixes = parse_receiver_list(body) if result.category is AttemptCategory.DELIVERED else ()
        has_failed = result.status_code is None or result.category is AttemptCategory.HTTP_5XX
        seconds_kept = RECEIVER_LIST_FAILURE_CACHE_SECONDS if has_failed else RECEIVER_LIST_CACHE_SECONDS
        return _CachedReceiverList(prefixes, now + seconds_kept)

    def _cache_list(self, origin: str, cached: _CachedReceiverList) -> None:
        self._cache[origin] = cached
        self._cache.move_to_end(origin)
        if len(self._cache) > RECEIVER_LIST_CACHE_MAX:
            self._cache.popitem(last=False)


def parse_receiver_list(document: bytes) -> tuple[str, ...]:
    """The path prefixes of a receiver list; none if the document is invalid."""
    receivers = parse_json_object(document).get("receivers")
    if not isinstance(receivers, list):
        return ()
    prefixes = cast("list[Any]", receivers)[:RECEIVER_PREFIXES_MAX]
    return tuple(prefix for prefix in prefixes if isinstance(prefix, str) and prefix.startswith("/"))


def parse_json_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object in a response body; an empty one for anything else."""
    try:
        parsed: Any = jsontext.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}


async def is_proven(tx: Transaction, webhook: Webhook) -> bool:
    """Whether the URL was proven to this principal within `PROOF_VALID_SECONDS`."""
    proven_at = await tx.proofs.get_proven_at(webhook.principal, webhook.url)
    return proven_at is not None and tx.now() - proven_at < seconds(PROOF_VALID_SECONDS)


async def challenge_delay_seconds(tx: Transaction, challenge: Challenge) -> float:
    """Seconds until the rate limits of the origin and the principal allow the challenge; 0 if they allow it now."""
    limits = await count_against_limits(tx, origin=challenge.origin, principal=challenge.principal)
    return max(seconds_until_below_limit(each.recent, each.limit, now=tx.now()) for each in limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeLimit:
    """A rate limit of challenges, and those that count against it now."""

    quota: str
    limit: int
    recent: RecentChallenges


async def count_against_limits(tx: Transaction, *, origin: str, principal: Principal) -> Sequence[ChallengeLimit]:
    """The limits that a challenge of the principal to the origin must keep."""
    count, now = tx.challenges.count_recent, tx.now()
    of_pair = await count(origin=origin, principal=principal, now=now)
    of_origin = await count(origin=origin, now=now)
    of_principal = await count(principal=principal, now=now)
    return (
        ChallengeLimit(quota="challenges_of_origin", limit=CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX, recent=of_pair),
        ChallengeLimit(quota="challenges_of_origin", limit=CHALLENGES_PER_ORIGIN_MAX, recent=of_origin),
        ChallengeLimit(quota="challenges", limit=CHALLENGES_PER_PRINCIPAL_MAX, recent=of_principal),
    )


async def accept_proof(tx: Transaction, webhook: Webhook, *, url: str) -> Webhook:
    """Save the proof. A webhook that waits for it becomes active, and its held deliveries become due.

    The caller holds the lock of the webhook's row.
    """
    await tx.proofs.save(webhook.principal, url, now=tx.now())
    if webhook.url != url:
        return webhook  # its new URL has a challenge of its own
    await tx.challenges.remove(webhook.id)
    tx.notify(challenge_ended_topic(webhook.id))
    if webhook.state is not WebhookState.PENDING_VERIFICATION:
        return webhook
    # Under the lock of the log: a delivery that is inserted as held is released here, or finds the webhook active.
    await tx.event_log.get_head(webhook.principal, lock=True)
    active = replace(webhook, state=WebhookState.ACTIVE, last_error=None, last_error_detail=None)
    await tx.webhooks.update(active, WebhookPart.STATE, WebhookPart.HEALTH)
    if not active.holds_deliveries():
        await tx.webhook_deliveries.release_held(active.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
        tx.notify(DELIVERY_DUE_TOPIC)
    return active
