"""Finds an upstream that leads back to this service, directly or through other Ringbacks.

    A ──▶ B ──▶ A      Each Ringback names itself and the Ringbacks behind it in the `_meta` of initialize, server/discover and
                       tools/list. A service that finds itself there ends the session: its tools would be listed in a circle,
                       under longer and longer names.

The first two results answer most loops. Two services that connect to each other at the same moment find the loop in the first
list, which they request after the handshake. A different Ringback behind this one is an upstream like any other.
"""

import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from ringback.domain.meta import INSTANCES_META_KEY

IDS_MAX: Final = 32
"""Ids that one upstream may name, and that a result has. A chain of Ringbacks has two or three."""
_ID: Final = re.compile(r"[0-9a-f]{32}")


class LeadsBackHere(Exception):
    """The upstream is this service, or has it behind it."""


class InstanceIds:
    def __init__(self, own_id: str = "") -> None:
        """Without an id of its own, a service is found by no other, and finds no loop."""
        self._own_id = own_id
        self._behind: dict[str, Counter[str]] = {}

    def list_ids(self, upstream: str | None) -> Sequence[str]:
        """This service and the Ringbacks behind this upstream, or behind all of them."""
        names = self._behind if upstream is None else [upstream]
        behind = {each: None for name in names for each in self._behind.get(name, ())}
        return [each for each in (self._own_id, *behind) if each][:IDS_MAX]

    def require_elsewhere(self, result: Mapping[str, Any]) -> None:
        """Raise `LeadsBackHere` if the result names this service."""
        if self._own_id and self._own_id in read_instance_ids(result):
            raise LeadsBackHere

    @contextmanager
    def session_to(self, upstream: str, handshake: Mapping[str, Any]) -> Generator[None]:
        """Count the Ringbacks that the handshake names while the session is open; raises `LeadsBackHere`."""
        self.require_elsewhere(handshake)
        ids = read_instance_ids(handshake)
        self._behind.setdefault(upstream, Counter()).update(ids)
        try:
            yield
        finally:
            remaining = self._behind.pop(upstream, Counter[str]())  # none, if an earlier end has left no ids
            remaining.subtract(ids)
            if kept := +remaining:
                self._behind[upstream] = kept


def read_instance_ids(result: Mapping[str, Any]) -> Sequence[str]:
    """The ids in a result of an upstream; what is no id is ignored."""
    meta = result.get("_meta")
    named = cast("dict[str, object]", meta).get(INSTANCES_META_KEY) if isinstance(meta, dict) else None
    found = cast("list[object]", named)[:IDS_MAX] if isinstance(named, list) else []
    return [each for each in found if isinstance(each, str) and _ID.fullmatch(each)]
