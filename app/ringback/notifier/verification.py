"""Consent that needs no challenge: the operator's allowlist, and the list that an origin publishes of its receivers.

Both name prefixes of URLs. A prefix ends where a path segment ends, so `/hooks` covers `/hooks` and `/hooks/a`, and not
`/hooks-of-others`. A path that could mean another one to its server is covered by no prefix but `/`.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote

from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.domain.delivery import AttemptCategory
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.principal import Principal
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.http.target import Target, TargetPolicy, parse_target

RECEIVER_LIST_PATH: Final = "/.well-known/mcp-webhook-receiver.json"
"""Where an origin lists the path prefixes of its receivers: `{"receivers": ["/hooks/"]}` (mcp-events §8)."""
RECEIVER_LIST_CACHE_SECONDS: Final = 600.0
"""How long a list is believed, and the lack of one: a change is seen within ten minutes."""
RECEIVER_LIST_CACHE_MAX: Final = 1_000
"""Origins whose list is remembered; each is at most 16 KiB, and mostly nothing."""
RECEIVER_PREFIXES_MAX: Final = 100
RECEIVER_LIST_TIMEOUT_SECONDS: Final = 5.0

_SEGMENT_SEPARATORS: Final = re.compile(r"[/\\]")


def prefix_covers_path(prefix: str, path: str) -> bool:
    """Whether a request to `path`, which may have a query, lies within the path prefix."""
    path = path.partition("?")[0]
    if prefix == "/":
        return True
    is_within = path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
    return is_within and not _has_dot_segment(path)


def _has_dot_segment(path: str) -> bool:
    """Whether some server could read a step upwards in it: dots may be percent-encoded, and have parameters (`..;a=1`)."""
    segments = _SEGMENT_SEPARATORS.split(unquote(unquote(path)))
    return any(segment.partition(";")[0] in {".", ".."} for segment in segments)


class CallbackAllowlist:
    """URLs that the operator vouches for (RINGBACK_CALLBACK_ALLOWLIST)."""

    def __init__(self, prefixes: Sequence[str], policy: TargetPolicy) -> None:
        """Raises `InvalidCallbackUrl` for a prefix that no callback could have."""
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
    """The lists that origins publish, fetched by the way that callbacks take."""

    def __init__(self, requester: HttpRequester, *, clock: Clock, policy: TargetPolicy) -> None:
        self._requester = requester
        self._clock = clock
        self._policy = policy
        self._cache: OrderedDict[str, _CachedReceiverList] = OrderedDict()

    async def lists_target(self, target: Target, principal: Principal = NO_PRINCIPAL) -> bool:
        """Whether its origin says that callbacks are wanted there; a look-up that this takes counts for `principal`."""
        now = self._clock.monotonic()
        cached = self._cache.get(target.origin)
        if cached is None or cached.expires_at <= now:
            cached = _CachedReceiverList(
                await self._fetch_prefixes(target, principal), now + RECEIVER_LIST_CACHE_SECONDS
            )
            self._cache_list(target.origin, cached)
        return any(prefix_covers_path(prefix, target.path) for prefix in cached.prefixes)

    async def _fetch_prefixes(self, target: Target, principal: Principal) -> tuple[str, ...]:
        document = parse_target(target.origin + RECEIVER_LIST_PATH, self._policy)
        result, body = await self._requester.send_request(
            "GET",
            document,
            {"accept": "application/json"},
            b"",
            principal=principal,
            deadline_seconds=RECEIVER_LIST_TIMEOUT_SECONDS,
        )
        return parse_receiver_list(body) if result.category is AttemptCategory.DELIVERED else ()

    def _cache_list(self, origin: str, cached: _CachedReceiverList) -> None:
        self._cache[origin] = cached
        self._cache.move_to_end(origin)
        if len(self._cache) > RECEIVER_LIST_CACHE_MAX:
            self._cache.popitem(last=False)


def parse_receiver_list(document: bytes) -> tuple[str, ...]:
    """The path prefixes of a published list; none of a document that is no such list."""
    receivers = parse_json_object(document).get("receivers")
    if not isinstance(receivers, list):
        return ()
    prefixes = cast("list[Any]", receivers)[:RECEIVER_PREFIXES_MAX]
    return tuple(prefix for prefix in prefixes if isinstance(prefix, str) and prefix.startswith("/"))


def parse_json_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object that somebody answered with; an empty one for everything else."""
    try:
        parsed: Any = jsontext.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
