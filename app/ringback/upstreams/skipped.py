"""The entries of the configuration that cannot be served: shown, logged once for each reading, named when they are called."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
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

    def list_kept(self) -> Sequence[SkippedUpstream]:
        """The entries in whose place the former ones are served."""
        ...


class SkippedEntries:
    """Implements `SkippedUpstreams` for the configuration that was read last."""

    def __init__(self, judge_config: JudgeConfig = lambda _: None) -> None:
        self._judge_config = judge_config
        self._skipped: Sequence[SkippedUpstream] = ()
        self._kept: Sequence[SkippedUpstream] = ()

    def select_served(
        self, entries: Iterable[UpstreamEntry], previous: Mapping[str, UpstreamConfig]
    ) -> Sequence[UpstreamConfig]:
        """The entries that are served. The others replace the ones of the last reading, and are logged.

        An upstream of `previous` whose entry cannot be served any more keeps its former one: a misspelled member must not stop
        an upstream that works.
        """
        judged = [self._judge_entry(entry) for entry in entries]
        kept = _find_kept(judged, previous)
        self._kept = tuple(kept.values())
        self._skipped = tuple(each for each in judged if isinstance(each, SkippedUpstream) and each not in self._kept)
        self._log_entries()
        served = [previous[each.name] if each in self._kept else each for each in judged]
        return [each for each in served if isinstance(each, UpstreamConfig)]

    def _log_entries(self) -> None:
        for each in self._skipped:
            log.warning("upstream.skipped", extra=_describe_entry(each))
        for each in self._kept:
            log.warning("upstream.kept", extra=_describe_entry(each))

    def list_all(self) -> Sequence[SkippedUpstream]:
        return self._skipped

    def list_kept(self) -> Sequence[SkippedUpstream]:
        return self._kept

    def find(self, name: str) -> SkippedUpstream | None:
        return next((each for each in self._skipped if each.name == name), None)

    def _judge_entry(self, entry: UpstreamEntry) -> UpstreamEntry:
        return entry if isinstance(entry, SkippedUpstream) else self._judge_config(entry) or entry


def _describe_entry(entry: SkippedUpstream) -> Mapping[str, str]:
    return {"upstream": entry.configured_name, "reason": str(entry.reason), "advice": entry.advice}


def _find_kept(
    judged: Sequence[UpstreamEntry], previous: Mapping[str, UpstreamConfig]
) -> Mapping[str, SkippedUpstream]:
    """By name, the first invalid entry of each earlier upstream whose name no valid entry has now."""
    replaced = {each.name for each in judged if isinstance(each, UpstreamConfig)}
    kept: dict[str, SkippedUpstream] = {}
    for each in judged:
        if isinstance(each, SkippedUpstream) and each.name in previous and each.name not in replaced:
            kept.setdefault(each.name, each)
    return kept
