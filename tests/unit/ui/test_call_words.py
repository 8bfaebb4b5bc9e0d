"""How lists of the dashboard name the state of a call."""

from datetime import datetime

import pytest

from ringback.domain.call import CallPhase
from ringback.ui.rendering import Renderer
from tests.support.builders import make_call
from tests.support.clock import START


@pytest.mark.parametrize(
    ("phase", "dispatched_at", "badge"),
    [
        (CallPhase.SCHEDULED, None, '<span class="badge ">starts later</span>'),
        (CallPhase.QUEUED, None, '<span class="badge ">queued</span>'),
        (CallPhase.RUNNING, None, '<span class="badge ">waits for its upstream</span>'),
        (CallPhase.QUEUED, START, '<span class="badge busy">working</span>'),
        (CallPhase.RUNNING, START, '<span class="badge busy">working</span>'),
    ],
)
def test_the_badge_of_a_call_says_what_it_waits_for(
    phase: CallPhase, dispatched_at: datetime | None, badge: str
) -> None:
    """A task that ran at its upstream, and had no runner at the moment, was called queued."""
    call = make_call(phase=phase, dispatched_at=dispatched_at)

    page = Renderer(public_path="").render_fragment(
        "call_rows.html", path="/ui", calls=[call], shows_owner=False, is_filtered=False, older=None, newest=None
    )

    assert badge in page
