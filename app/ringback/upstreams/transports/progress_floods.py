"""Leaves out progress that is outdated before it is read: of a flood, one event of each kind remains in what was read at once.

Lines end with LF here.

A tool that reports each of a hundred thousand steps sends them all before its result, on the same stream. To read each event by
itself takes ten times as long as this does (measured), so the result would wait for its progress.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final

from ringback.upstreams.transports.notification_buffer import read_progress_key

_EVENT_END: Final = re.compile(rb"\n\n")
_EVENT: Final = re.compile(rb"(?:(?:event: ?message|id:[^\n]*)\n)*data: ?([^\n]*notifications/progress[^\n]*)\n\n")
"""A whole event whose data is one line."""
EVENTS_MIN: Final = 16
"""Fewer events are read one by one."""


def find_group_ends(chunk: bytes) -> Iterator[int]:
    """Where each group of `EVENTS_MIN` events of the chunk ends; the rest is shorter. Ends are found one by one."""
    return (found.end() for found in islice(_EVENT_END.finditer(chunk), EVENTS_MIN - 1, None, EVENTS_MIN))


def leave_out_outdated(chunk: bytes) -> tuple[bytes, int]:
    """The chunk without progress that later progress in it replaces, and the number of events that were left out.

    The first and the last event may be incomplete, and are kept. All other events and their order stay as they are.
    """
    ends = [found.end() for found in _EVENT_END.finditer(chunk)]
    if len(ends) < EVENTS_MIN:
        return chunk, 0
    events = [chunk[start:end] for start, end in pairwise(ends)]
    kept = [*_keep_newest(reversed(events))]
    if len(kept) == len(events):
        return chunk, 0
    return b"".join([chunk[: ends[0]], *reversed(kept), chunk[ends[-1] :]]), len(events) - len(kept)


def _keep_newest(newest_first: Iterable[bytes]) -> Iterable[bytes]:
    seen = set[object]()
    for event in newest_first:
        found = _EVENT.fullmatch(event)
        key = None if found is None else read_progress_key(found[1])
        if key is None:
            yield event
        elif key not in seen:
            seen.add(key)
            yield event
