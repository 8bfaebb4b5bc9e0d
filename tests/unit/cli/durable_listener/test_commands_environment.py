"""A command of `listen --exec` finds the listener's own service and API key in its environment."""

from pathlib import Path

import pytest

from ringback.cli.durable_listener.handlers import Handled, ReceivedCallback
from ringback.cli.durable_listener.state_file import EventSelection
from ringback.cli.listening import ListenOptions, create_command_handler
from ringback.receiver import Callback, parse
from tests.support.limits import WAIT_SECONDS

BODY = b'{"eventId":"evt_1","name":"call.finished","timestamp":"2026-11-20T17:00:00.000Z","data":{}}'


def make_options(folder: Path, *, api_key: str | None) -> ListenOptions:
    return ListenOptions(
        selection=EventSelection(url="http://127.0.0.1:8091", names=("call.finished",)),
        api_key=api_key,
        state=folder / "state.db",
        from_start=False,
        retry_given_up=False,
        forward_to=None,
        secret=None,
        command=None,
        command_timeout_seconds=WAIT_SECONDS,
        attempts=1,
        parallel=1,
        as_json=False,
    )


@pytest.mark.parametrize(("given", "found"), [("rbk_given", "rbk_given"), (None, "rbk_inherited")])
async def test_a_command_gets_the_url_and_the_api_key_of_its_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, found: str
) -> None:
    monkeypatch.setenv("RINGBACK_URL", "http://inherited")
    monkeypatch.setenv("RINGBACK_API_KEY", "rbk_inherited")
    command = f'printf "%s %s" "$RINGBACK_URL" "$RINGBACK_API_KEY" > {tmp_path}/service'
    handler = create_command_handler(make_options(tmp_path, api_key=given), command)
    callback = parse(BODY)
    assert isinstance(callback, Callback)

    outcome = await handler.handle_callback(ReceivedCallback(event_id="evt_1", callback=callback, body=BODY, attempt=1))

    assert outcome == Handled()
    assert (tmp_path / "service").read_text(encoding="utf-8") == f"http://127.0.0.1:8091 {found}"
