"""The log: no holes, and each reader gets each event once, in order, and soon; what was published is in it once."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from scripts.simulate_runs.clock import STARTED_AT
from scripts.simulate_runs.history import ObservedReads
from scripts.simulate_runs.plan import PUBLISHED_EVENT, PlannedReader, ReaderKind
from scripts.simulate_runs.rules import Rule, Violation
from scripts.simulate_runs.run import SimulationResult

STREAM_SECONDS: Final = 5.0
"""A stream sends an event within this time after the commit, or after its node listens again."""


def find_log_violations(result: SimulationResult) -> Iterator[Violation]:
    seqs: defaultdict[str, list[int]] = defaultdict(list)
    for event in result.records.events:
        seqs[event.principal].append(event.seq)
    yield from _check_places(result, seqs)
    yield from _check_reads(result)
    yield from _check_published(result)
    yield from (Violation(Rule.WRONG_KEYS, each) for each in result.history.wrong_keys)


def _check_places(result: SimulationResult, seqs: Mapping[str, list[int]]) -> Iterator[Violation]:
    for principal, head in result.records.heads.items():
        found, is_erased = seqs.get(principal, []), result.history.is_principal_erased(principal)
        first = found[0] if found and is_erased else 1
        if found != list(range(first, head + 1)) and not (is_erased and not found):
            yield Violation(Rule.SEQ_HOLES, f"the log of {principal} ends at {head} and has {found}")


def _check_reads(result: SimulationResult) -> Iterator[Violation]:
    for principal, read in result.history.log_reads.items():
        if result.history.is_principal_erased(principal):
            continue
        if read != list(range(1, result.records.heads.get(principal, 0) + 1)):
            yield Violation(Rule.SKIPPED_EVENTS, f"a reader of the log of {principal} got {read}")
    for reader, reads in result.history.reads.items():
        if result.history.is_principal_erased(reader.principal):
            continue
        expected = _list_expected(result, reader)
        if reads.seqs != expected:
            yield Violation(
                Rule.SKIPPED_EVENTS, f"a {reader.kind} of {reader.principal} got {reads.seqs} of {expected}"
            )
        yield from _check_arrivals(result, reader, reads)


def _list_expected(result: SimulationResult, reader: PlannedReader) -> list[int]:
    return [
        event.seq
        for event in result.records.events
        if event.principal == reader.principal and (reader.kind is ReaderKind.STREAM or event.name == PUBLISHED_EVENT)
    ]


def _check_arrivals(result: SimulationResult, reader: PlannedReader, reads: ObservedReads) -> Iterator[Violation]:
    """Only a lost listener is in the way of an event: it may be late, but not later than the node listens again."""
    if result.history.disturbances or result.plan.lost_notifications:
        return
    created = {event.seq: event.created_at for event in result.records.events if event.principal == reader.principal}
    for seq, arrived_at, began_at in reads.arrivals:
        committed_at = (created.get(seq, 0) - STARTED_AT) / 1000
        deaf_until = [until for begins, until in result.history.deaf_times if begins - 1.0 <= committed_at <= until]
        if arrived_at > max(committed_at, began_at, *deaf_until) + STREAM_SECONDS:
            late = arrived_at - committed_at
            yield Violation(Rule.LATE_EVENTS, f"a stream of {reader.principal} got event {seq} {late:.1f} s late")


def _check_published(result: SimulationResult) -> Iterator[Violation]:
    stored = Counter(event.id for event in result.records.events if event.name == PUBLISHED_EVENT)
    seqs = {event.id: event.seq for event in result.records.events}
    last: dict[str, int] = {}
    names = {each.name for each in result.plan.publishers}
    expected_ids = {f"{each.name}-{number}" for each in result.plan.publishers for number in range(each.events)}
    if names and (foreign := sorted(stored.keys() - expected_ids)):
        yield Violation(Rule.SECOND_EVENTS, f"the log has {foreign}, which no client published")
    for event in result.history.published:
        if result.history.is_principal_erased(event.principal):
            continue
        if not stored[event.event_id]:
            yield Violation(Rule.LOST_EVENTS, f"{event.event_id} was acknowledged, and is not in the log")
            continue
        if event.is_repeated and event.is_new:
            yield Violation(Rule.SECOND_EVENTS, f"{event.event_id} was published twice as new")
        if seqs[event.event_id] < last.get(event.publisher, 0):
            yield Violation(Rule.ORDER, f"{event.event_id} is in the log before what was acknowledged earlier")
        last[event.publisher] = seqs[event.event_id]
