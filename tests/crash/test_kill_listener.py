"""`kill -9` of `ringback listen --exec`, again and again under load, on one state file."""

import asyncio
import os
import random
import signal
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from ringback.client import RingbackClient
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.forked_commands import running_forked_command
from tests.support.processes import is_running
from tests.support.upstreams import wait_until_true

SESSIONS: Final = 3
CALLS_PER_SESSION: Final = 5
"""Calls that end in each session between two kills."""
COMMAND: Final = 'printf "%s %s\\n" "$RINGBACK_CLIENT_SESSION_ID" "$RINGBACK_CORRELATION_ID" >> ledger'


@pytest.mark.requirement("R16")
@pytest.mark.requirement("R35")
async def test_a_listener_killed_at_random_moments_handles_every_callback_in_order_and_stores_each_once(
    tmp_path: Path, *, deep: bool
) -> None:
    chance, rounds = random.Random(20261122), 50 if deep else 4
    ledger = Ledger(tmp_path / "ledger")
    async with running_application(tmp_path, auth="off") as ringback, serving_api(ringback.app.api) as url:
        async with RingbackClient(url) as reporter, listening(url, tmp_path):
            await wait_until_true((tmp_path / "listen.db").exists)
            ended = await report_calls(reporter, range(CALLS_PER_SESSION))
            await wait_until_true(lambda: bool(ledger.read()))
        async with RingbackClient(url) as reporter:
            for number in range(1, rounds):
                async with listening(url, tmp_path):
                    first = number * CALLS_PER_SESSION
                    goal = chance.randrange(len(ended) + SESSIONS * CALLS_PER_SESSION)
                    ended += await report_calls(reporter, range(first, first + CALLS_PER_SESSION))
                    await wait_until_true(lambda goal=goal: len(set(ledger.read())) >= goal)
        async with listening(url, tmp_path):
            await wait_until_true(lambda: set(ledger.read()) == set(ended))

    assert_order(ledger.read())
    assert read_inbox_counts(tmp_path / "listen.db") == (len(ended), len(ended))


@pytest.mark.requirement("R35")
async def test_a_command_ends_with_the_listener_that_was_killed(tmp_path: Path) -> None:
    """The next listener runs the command again. Two runs at once could resume one session twice."""
    child_file = tmp_path / "child"
    command = f"echo $$ > {child_file}.new; mv {child_file}.new {child_file}; sleep 3600"
    async with (
        running_application(tmp_path, auth="off") as ringback,
        serving_api(ringback.app.api) as url,
        RingbackClient(url) as reporter,
        listening(url, tmp_path, command=command),
    ):
        await report_calls(reporter, range(1))
        await wait_until_true(child_file.exists)

    child = int(child_file.read_text(encoding="utf-8"))
    await wait_until_true(lambda: not is_running(child))


class Ledger:
    """The lines that the command wrote: session and correlation id of each callback that it got."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Sequence[tuple[str, str]]:
        if not self._path.exists():
            return []
        lines = self._path.read_text(encoding="utf-8").splitlines()
        return [(session, correlation) for session, correlation in (line.split() for line in lines)]


@asynccontextmanager
async def listening(url: str, folder: Path, *, command: str = COMMAND) -> AsyncGenerator[None]:
    """Run the listener; the end of the context kills it with SIGKILL."""
    arguments = ("listen", "--url", url, "--state", str(folder / "listen.db"), "--exec", command, "--from-start")
    async with running_forked_command(*arguments, folder=folder, environment=dict(os.environ)) as process:
        reading = [asyncio.create_task(stream.read()) for stream in (process.stdout, process.stderr)]
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            await asyncio.gather(*reading)


async def report_calls(reporter: RingbackClient, numbers: range) -> list[tuple[str, str]]:
    """End a call with each number in each session, in the order of the numbers."""
    ended: list[tuple[str, str]] = []
    for number in numbers:
        for session in (f"s{index}" for index in range(SESSIONS)):
            await reporter.report(
                f"{session}-{number}",
                "stage",
                "build",
                client_session_id=session,
                correlation_id=str(number),
                result={"content": []},
            )
            ended.append((session, str(number)))
    return ended


def assert_order(handled: Sequence[tuple[str, str]]) -> None:
    """Each session's callbacks were handled for the first time in the order of their events."""
    first_times: dict[str, list[int]] = defaultdict(list)
    for session, correlation in dict.fromkeys(handled):
        first_times[session].append(int(correlation))
    for numbers in first_times.values():
        assert numbers == list(range(len(numbers)))


def read_inbox_counts(path: Path) -> tuple[int, int]:
    """The numbers of rows and of different events."""
    connection = sqlite3.connect(path)
    try:
        rows, events = connection.execute("SELECT count(*), count(DISTINCT message_id) FROM messages").fetchone()
        return int(rows), int(events)
    finally:
        connection.close()
