"""What the check of an open stream answers, and how often it asks the store."""

from typing import cast

import pytest
from starlette.requests import Request

from ringback.domain.clock import SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.ui import viewer_checks
from ringback.ui.viewer import Viewer
from ringback.ui.viewer_checks import ViewerChecks
from ringback.ui.viewers import Viewers

ALICE = Viewer(caller=Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES), form_token="token")
REQUEST = Request({"type": "http"})


class StoredViewer:
    """Finds one viewer; None after its end."""

    def __init__(self) -> None:
        self.found: Viewer | StoreUnavailable | None = ALICE
        self.reads = 0

    async def find_viewer(self, request: Request) -> Viewer | None:
        del request
        self.reads += 1
        if isinstance(self.found, StoreUnavailable):
            raise self.found
        return self.found


def test_streams_of_one_viewer_share_its_check() -> None:
    stored = StoredViewer()
    checks = ViewerChecks(cast("Viewers", stored), SystemClock())
    first, second = (checks.open_check(REQUEST, ALICE) for _ in range(2))

    assert first is second
    assert stored.reads == 0


async def test_rows_are_not_shown_while_the_store_does_not_answer_and_the_end_is_final(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(viewer_checks, "CHECK_SECONDS", 0.0)
    stored = StoredViewer()
    checks = ViewerChecks(cast("Viewers", stored), SystemClock())
    check = checks.open_check(REQUEST, ALICE)

    stored.found = StoreUnavailable("down")
    unknown = [await check.is_admitted(shows_rows=shows_rows) for shows_rows in (True, False)]
    stored.found = ALICE
    known = await check.is_admitted(shows_rows=True)
    stored.found = None
    ended = [await check.is_admitted(shows_rows=shows_rows) for shows_rows in (True, False)]

    assert (unknown, known, ended) == ([False, True], True, [False, False])
    assert checks.open_check(REQUEST, ALICE) is not check
