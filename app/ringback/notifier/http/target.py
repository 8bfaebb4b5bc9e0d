"""A cache of parsed callback URLs: the dispatcher needs the same few repeatedly."""

from typing import Final

from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.http.guard import Target, TargetPolicy, parse_target

CACHED_TARGETS_MAX: Final = 10_000
"""Some megabytes. A service with more webhooks parses URLs again, at 28 µs each."""


class TargetCache:
    def __init__(self, policy: TargetPolicy) -> None:
        self._policy = policy
        self._cache: dict[str, Target | None] = {}

    def get_target(self, url: str) -> Target | None:
        """None if the operator's policy has become stricter since the webhook was registered."""
        try:
            return self._cache[url]
        except KeyError:
            return self._parse_and_cache(url)

    def get_origin(self, url: str) -> str:
        """The key of limits and circuit breakers; a URL that the policy refuses is its own origin."""
        target = self.get_target(url)
        return url if target is None else target.origin

    def _parse_and_cache(self, url: str) -> Target | None:
        if len(self._cache) >= CACHED_TARGETS_MAX:
            self._cache.clear()
        try:
            target = parse_target(url, self._policy)
        except InvalidCallbackUrl:
            target = None
        self._cache[url] = target
        return target
