"""What commands say about a call."""

from typing import Any

import pytest

from ringback.cli import call_words
from ringback.client import Call
from ringback.schemas import examples


@pytest.mark.parametrize(
    ("document", "state"),
    [
        (examples.WORKING_CALL | {"progress": None, "waits_for": None}, "working"),
        (examples.WORKING_CALL | {"progress": {"progress": 1, "message": "page 1"}, "waits_for": None}, "page 1"),
        (examples.WORKING_CALL | {"waits_for": "queue"}, "queued"),
        (examples.WORKING_CALL | {"waits_for": "upstream"}, "waits for its upstream"),
        (examples.INPUT_REQUIRED_CALL, "waits for input"),
    ],
)
def test_the_bar_says_what_the_call_does_or_waits_for(document: dict[str, Any], state: str) -> None:
    assert call_words.describe_state(Call.model_validate(document)) == state


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"waits_for": "queue", "dispatched_at": None}, "working (queued)"),
        ({"waits_for": "upstream", "dispatched_at": None}, "working (waits for its upstream)"),
        ({"waits_for": None, "dispatched_at": examples.WORKING_CALL["dispatched_at"]}, "working"),
    ],
)
def test_the_status_of_a_call_that_has_not_started_says_what_it_waits_for(changes: dict[str, Any], status: str) -> None:
    assert call_words.describe_status(Call.model_validate(examples.WORKING_CALL | changes)) == status
