"""When a child that says nothing is replaced: the table of `domain.liveness`."""

from typing import Any, Final

import pytest

from ringback.domain.liveness import (
    STOPPED_TIMEOUT_SECONDS,
    UNRESPONSIVE_AFTER_SECONDS,
    Liveness,
    LivenessSample,
    classify_liveness,
)

NOW: Final = 1000.0
LONG_SILENT: Final = NOW - UNRESPONSIVE_AFTER_SECONDS
ALIVE, UNRESPONSIVE, FROZEN = Liveness


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        pytest.param({}, ALIVE, id="it answers"),
        pytest.param({"deadlines": [NOW - 1]}, ALIVE, id="it answers, and a call is overdue"),
        pytest.param({"ping_unanswered_since": LONG_SILENT + 1}, ALIVE, id="not silent for long"),
        pytest.param({"ping_unanswered_since": LONG_SILENT}, FROZEN, id="idle and silent"),
        pytest.param(
            {"ping_unanswered_since": LONG_SILENT, "deadlines": [NOW + 1]}, UNRESPONSIVE, id="busy and silent"
        ),
        pytest.param(
            {"ping_unanswered_since": 0.0, "deadlines": [NOW + 1]}, UNRESPONSIVE, id="busy and silent for ever"
        ),
        pytest.param({"ping_unanswered_since": LONG_SILENT, "deadlines": [NOW, NOW - 5]}, FROZEN, id="all overdue"),
        pytest.param(
            {"ping_unanswered_since": LONG_SILENT, "deadlines": [NOW - 5, NOW + 5]}, UNRESPONSIVE, id="one has time"
        ),
        pytest.param(
            {"ping_unanswered_since": LONG_SILENT + 1, "deadlines": [NOW - 5]}, ALIVE, id="overdue, not silent for long"
        ),
        pytest.param({"reads_input": False, "deadlines": [NOW + 1]}, UNRESPONSIVE, id="it reads nothing"),
        pytest.param({"reads_input": False}, UNRESPONSIVE, id="it reads nothing, and is not silent for long"),
        pytest.param(
            {"stopped_since": NOW - STOPPED_TIMEOUT_SECONDS, "deadlines": [NOW + 1]}, FROZEN, id="stopped, with a call"
        ),
        pytest.param({"stopped_since": NOW - STOPPED_TIMEOUT_SECONDS}, FROZEN, id="stopped, and idle"),
        pytest.param({"stopped_since": NOW - STOPPED_TIMEOUT_SECONDS + 1}, ALIVE, id="stopped a moment ago"),
    ],
)
def test_only_a_child_that_no_call_depends_on_is_replaced(seen: dict[str, Any], verdict: Liveness) -> None:
    assert classify_liveness(LivenessSample(now=NOW, **seen)) is verdict
