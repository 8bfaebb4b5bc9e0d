"""The request ids of elicitations, which name the question that they ask.

A client answers at whichever node its connection reaches. The node that asked waits for the answer in memory. Any other node,
also the same one after a restart, finds the question by the id, and stores the answer in the call. `answer_input` checks that
the call is the caller's, so the id is no secret and needs no seal.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

from ringback.domain.call import Call
from ringback.domain.ids import CallId, IdGenerator
from ringback.protocol.question_ids import QUESTION_ID_PREFIX

_RANDOM_BYTES: Final = 8
"""The same question may be asked on several streams at once."""
_PATTERN: Final = re.compile(rf"{QUESTION_ID_PREFIX}(?P<call_id>[A-Za-z0-9_]{{1,64}}):(?P<key>[^:]{{1,128}}):[0-9a-f]+")


class AskedQuestion(NamedTuple):
    call_id: CallId
    key: str


class ElicitationIds:
    """The ids of the elicitations that this node waits for."""

    def __init__(self, ids: IdGenerator) -> None:
        self._ids = ids
        self._waiting = set[str]()

    @contextmanager
    def open_elicitation(self, call: Call, key: str) -> Generator[str]:
        """A new id. Until the end of the context, its answer reaches the code that waits here."""
        request_id = f"{QUESTION_ID_PREFIX}{call.id}:{key}:{self._ids.random_bytes(_RANDOM_BYTES).hex()}"
        self._waiting.add(request_id)
        try:
            yield request_id
        finally:
            self._waiting.discard(request_id)

    def find_question(self, message: Any) -> AskedQuestion | None:
        """The question that this message answers, if this node does not wait for the answer."""
        if not isinstance(message, dict) or "method" in message:
            return None
        request_id = cast("dict[str, Any]", message).get("id")
        if not isinstance(request_id, str) or request_id in self._waiting:
            return None
        asked = _PATTERN.fullmatch(request_id)
        return AskedQuestion(CallId(asked["call_id"]), asked["key"]) if asked else None
