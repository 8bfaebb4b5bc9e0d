"""How `ringback check-server` makes an event happen by a command."""

import asyncio

import pytest

from ringback.cli.server_checks import emitters
from ringback.cli.server_checks.cases import Untestable
from ringback.cli.server_checks.emitters import CommandEmitter
from tests.support.limits import WAIT_SECONDS


async def test_a_command_that_hangs_is_ended_with_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitters, "COMMAND_SECONDS", 0.2)
    emitter = CommandEmitter(f"sleep {10 * WAIT_SECONDS}; true")  # the shell waits for another process

    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(Untestable, match=r"did not end within 0.2 s"):
            await emitter.emit()
