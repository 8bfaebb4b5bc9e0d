"""Callback URLs of webhooks, taken apart once: the dispatcher asks for the same few again and again."""

from typing import Final

from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.target_guard import Target, TargetPolicy, parse_target

REMEMBERED_MAX: Final = 10_000
"""Some megabytes. Whoever has more webhooks than this takes URLs apart again, for 28 µs each."""


class Targets:
    def __init__(self, policy: TargetPolicy) -> None:
        self._policy = policy
        self._known: dict[str, Target | None] = {}

    def of(self, url: str) -> Target | None:
        """None when the operator's policy has become stricter since the webhook was registered."""
        try:
            return self._known[url]
        except KeyError:
            return self._remember(url)

    def origin(self, url: str) -> str:
        """What limits and breakers are keyed by; a URL that is refused stands for itself."""
        target = self.of(url)
        return url if target is None else target.origin

    def _remember(self, url: str) -> Target | None:
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        try:
            target = parse_target(url, self._policy)
        except InvalidCallbackUrl:
            target = None
        self._known[url] = target
        return target
