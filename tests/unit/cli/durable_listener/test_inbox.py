"""The listener's file: each event once, the cursor with it, and what survives a restart."""

import sqlite3
from pathlib import Path

import pytest

from ringback.cli.durable_listener import inbox as inbox_module
from ringback.cli.durable_listener.inbox import NewCallback, open_inbox
from ringback.cli.durable_listener.state_file import (
    EventSelection,
    StateFileUnusable,
    default_path,
    find_files_of_other_keys,
    locked_state_file,
)

SELECTION = EventSelection(url="http://127.0.0.1:8090", names=("call.finished",))


def callback(number: int, session: str = "s1") -> NewCallback:
    return NewCallback(event_id=f"evt_{number}", order_key=session, cursor=f"c{number}", body=f"{number}".encode())


async def test_an_event_that_comes_again_is_stored_once_and_the_cursor_advances(tmp_path: Path) -> None:
    async with open_inbox(tmp_path / "inbox.db") as inbox:
        first = await inbox.store([callback(1), callback(2)], cursor="c2")
        again = await inbox.store([callback(2), callback(3)], cursor="c3")

        assert [waiting.event_id for waiting in first] == ["evt_1", "evt_2"]
        assert [waiting.event_id for waiting in again] == ["evt_3"]
        assert await inbox.read_setting("cursor") == "c3"


async def test_waiting_callbacks_and_their_attempts_survive_a_restart_in_order(tmp_path: Path) -> None:
    async with open_inbox(tmp_path / "inbox.db") as inbox:
        stored = await inbox.store([callback(1), callback(2), callback(3)], cursor="c3")
        await inbox.mark_handled(stored[0].position)
        await inbox.record_failure(stored[1].position, "exit code 1")

    async with open_inbox(tmp_path / "inbox.db") as inbox:
        waiting = await inbox.list_waiting()
        assert [(found.event_id, found.attempts) for found in waiting] == [("evt_2", 1), ("evt_3", 0)]
        assert await inbox.read_body(waiting[0].position) == b"2"


async def test_the_handled_cursor_is_before_the_oldest_waiting_callback(tmp_path: Path) -> None:
    async with open_inbox(tmp_path / "inbox.db") as inbox:
        await inbox.write_settings({"cursor": "c0", "first_cursor": "c0"})
        first, second = await inbox.store([callback(1), callback(2)], cursor="c2")
        cursors = [await inbox.read_handled_cursor()]
        for waiting in (second, first):
            await inbox.mark_handled(waiting.position)
            cursors.append(await inbox.read_handled_cursor())

    assert cursors == ["c0", "c0", "c2"]


async def test_a_callback_that_was_given_up_can_be_handled_again(tmp_path: Path) -> None:
    async with open_inbox(tmp_path / "inbox.db") as inbox:
        (waiting,) = await inbox.store([callback(1)], cursor="c1")
        await inbox.record_failure(waiting.position, "exit code 1")
        await inbox.mark_given_up(waiting.position)
        assert await inbox.list_waiting() == []
        assert await inbox.retry_given_up() == 1
        assert [(found.event_id, found.attempts) for found in await inbox.list_waiting()] == [("evt_1", 0)]


async def test_old_handled_callbacks_are_removed_and_waiting_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "REMEMBERED_CALLBACKS_MAX", 3)
    path = tmp_path / "inbox.db"
    async with open_inbox(path) as inbox:
        for number in range(10):
            (waiting,) = await inbox.store([callback(number)], cursor=f"c{number}")
            if number != 1:
                await inbox.mark_handled(waiting.position)
        await inbox.store([], cursor="c9")

    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT event_id FROM inbox ORDER BY position").fetchall()
    connection.close()
    assert [row[0] for row in rows] == ["evt_1", "evt_7", "evt_8", "evt_9"]


async def test_a_handled_callback_leaves_no_token_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    async with open_inbox(path) as inbox:
        (waiting,) = await inbox.store([callback(1)], cursor="c1")
        await inbox.mark_handled(waiting.position)

    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT body FROM inbox").fetchall() == [(None,)]
    connection.close()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("my notes " * 100, encoding="utf-8")
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()

    for path in (text, database):
        before = path.read_bytes()
        with pytest.raises(StateFileUnusable, match="--state"):
            async with open_inbox(path):
                pass
        assert path.read_bytes() == before


def test_a_second_listener_on_one_file_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "inbox.db"
    refused = pytest.raises(StateFileUnusable, match=r"process \d+\).*--state PATH")
    with locked_state_file(path), refused, locked_state_file(path):
        pass
    with locked_state_file(path):
        pass


def test_the_file_depends_on_url_key_and_selection(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    selections = [
        SELECTION,
        EventSelection(url="http://127.0.0.1:8091", names=("call.finished",)),
        EventSelection(url="http://127.0.0.1:8090", names=("call.finished",), client_session_id="s1"),
        EventSelection(url="http://127.0.0.1:8090", names=("call.progress",)),
    ]
    paths = {default_path(selection, api_key=key, environment=environment) for selection in selections for key in "ab"}
    slash = EventSelection(url="http://127.0.0.1:8090/", names=("call.finished",))

    assert len(paths) == 8
    assert default_path(slash, api_key="a", environment=environment) in paths
    assert not any(part == "a" for path in paths for part in path.name.split("-"))


def test_the_file_of_another_key_for_the_same_events_is_found(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    earlier, now = (default_path(SELECTION, api_key=key, environment=environment) for key in ("old", "new"))
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    now.touch()

    assert find_files_of_other_keys(now) == [earlier]
