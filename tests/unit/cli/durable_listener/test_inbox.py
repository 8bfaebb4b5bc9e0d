"""The listener's file: each event once, the cursor with it, and what survives a restart."""

import sqlite3
from contextlib import closing
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
from ringback.receiver import SQLiteInbox

VERSION_1 = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE inbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE, order_key TEXT NOT NULL, cursor TEXT,
    body BLOB, attempts INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'handled', 'given_up')), last_error TEXT
);
CREATE INDEX inbox_waiting ON inbox (position) WHERE state = 'waiting';
PRAGMA application_id = 1380076622;
PRAGMA user_version = 1;
INSERT INTO settings VALUES ('cursor', 'c14'), ('first_cursor', 'c0'), ('secret', 'whsec_1');
INSERT INTO inbox VALUES
    (11, 'evt_11', 's1', 'c11', NULL, 1, 'handled', 'exit code 1'),
    (12, 'evt_12', 's1', 'c12', X'3132', 2, 'waiting', 'exit code 1'),
    (13, 'evt_13', 's2', 'c13', X'3133', 64, 'given_up', 'exit code 1'),
    (14, 'evt_14', 's1', 'c14', X'3134', 0, 'waiting', NULL);
"""
"""A file of the version before the listener and `ringback.receiver` had one inbox, as that version wrote it."""

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


async def test_a_file_of_the_first_version_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1)

    for opened in range(2):  # the second time, it is a file of this version
        async with open_inbox(path) as inbox:
            waiting = await inbox.list_waiting()
            assert [(found.event_id, found.order_key, found.attempts) for found in waiting] == [
                ("evt_12", "s1", 2),
                ("evt_14", "s1", 0),
            ], opened
            assert await inbox.read_body(waiting[0].position) == b"12"
            assert [await inbox.read_setting(name) for name in ("cursor", "secret")] == ["c14", "whsec_1"]
            assert await inbox.read_handled_cursor() == "c11"

    async with open_inbox(path) as inbox:
        new = await inbox.store([callback(number) for number in (11, 12, 13, 14, 15)], cursor="c15")
        assert [found.event_id for found in new] == ["evt_15"]
        assert await inbox.retry_given_up() == 1
        assert [(found.event_id, found.attempts) for found in await inbox.list_waiting()] == [
            ("evt_12", 2),
            ("evt_13", 0),
            ("evt_14", 0),
            ("evt_15", 0),
        ]


async def test_a_listener_and_a_receiver_have_the_same_inbox(tmp_path: Path) -> None:
    async with open_inbox(tmp_path / "listener.db"):
        pass
    receiver = SQLiteInbox(tmp_path / "receiver.db")
    await receiver.open(now=0)
    await receiver.close()

    assert read_tables(tmp_path / "listener.db") == read_tables(tmp_path / "receiver.db")


def read_tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema ORDER BY name")]


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
    async with open_inbox(path):
        pass

    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT message_id FROM messages ORDER BY number").fetchall()
    connection.close()
    assert [row[0] for row in rows] == ["evt_1", "evt_7", "evt_8", "evt_9"]


async def test_a_handled_callback_leaves_no_token_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    async with open_inbox(path) as inbox:
        (waiting,) = await inbox.store([callback(1)], cursor="c1")
        await inbox.mark_handled(waiting.position)

    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT body FROM messages").fetchall() == [(None,)]
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
