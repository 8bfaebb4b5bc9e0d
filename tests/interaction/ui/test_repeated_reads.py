"""What an operator's open pages read again and again is in the audit log, but not with every read."""

import pytest

from ringback.domain.principal import Scope
from ringback.services.access import operators
from tests.support.service import CALL_BODY, ServiceUnderTest
from tests.support.viewer_browser import sign_in


async def test_the_refreshes_of_an_operators_page_are_one_line_in_ten_minutes(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = await service.create_client("alice")
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    operator = await sign_in(service, "root", scopes=frozenset({Scope.ADMIN}))
    caplog.set_level("INFO", logger="ringback.audit")

    for _ in range(3):
        assert (await operator.open(f"/calls/{call_id}/state")).status_code == 200
    await operator.open(f"/calls/{call_id}")
    monkeypatch.setattr(operators, "REPEATED_LINE_SECONDS", 0.0)
    await operator.open(f"/calls/{call_id}/state")

    operations = [getattr(record, "operation", "") for record in caplog.records if record.name == "ringback.audit"]
    assert [each for each in operations if each] == ["ui_refresh_call", "ui_read_call", "ui_refresh_call"]
