"""The entries of the configuration that are not served: shown, logged once for each reading, and named when they are called."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ringback.domain.upstreams import SkippedUpstream
from ringback.upstreams.config import UpstreamConfig, UpstreamEntry

log = logging.getLogger(__name__)

JudgeConfig = Callable[[UpstreamConfig], SkippedUpstream | None]
"""Why the service cannot serve an upstream whose entry is valid; None if it can."""


class SkippedUpstreams(Protocol):
    """What reports on skipped entries need of them."""

    def list_all(self) -> Sequence[SkippedUpstream]: ...

    def find(self, name: str) -> SkippedUpstream | None:
        """The entry that would have this name."""
        ...


class SkippedEntries:
    """Implements `SkippedUpstreams` for the configuration that was read last."""

    def __init__(self, judge_config: JudgeConfig = lambda _: None) -> None:
        self._judge_config = judge_config
        self._skipped: Sequence[SkippedUpstream] = ()

    def select_served(self, entries: Iterable[UpstreamEntry]) -> Sequence[UpstreamConfig]:
        """The entries that are served. The others replace the ones of the last reading, and are logged."""
        judged = [self._judge_entry(entry) for entry in entries]
        self._skipped = tuple(each for each in judged if isinstance(each, SkippedUpstream))
        for each in self._skipped:
            log.warning(
                "upstream.skipped",
                extra={"upstream": each.configured_name, "reason": str(each.reason), "advice": each.advice},
            )
        return [each for each in judged if isinstance(each, UpstreamConfig)]

    def list_all(self) -> Sequence[SkippedUpstream]:
        return self._skipped

    def find(self, name: str) -> SkippedUpstream | None:
        return next((each for each in self._skipped if each.name == name), None)

    def _judge_entry(self, entry: UpstreamEntry) -> UpstreamEntry:
        return entry if isinstance(entry, SkippedUpstream) else self._judge_config(entry) or entry
