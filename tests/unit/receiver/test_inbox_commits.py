"""Messages that arrive together are committed together, and no failure of one loses another."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringback.private_sqlite import open_private_file
from ringback.receiver import SQLiteInbox, inbox_file, sqlite_inbox
from ringback.receiver.inbox_file import InboxFile, InboxLimits, NewMessage
from ringback.receiver.inbox_schema import RECEIVER_FORMAT
from ringback.receiver.inbox_writer import InboxClosed
from tests.support.inbox_receivers import read_rows
from tests.support.limits import WAIT_SECONDS


async def add_together(inbox: SQLiteInbox, count: int) -> list[int | BaseException | None]:
    return await asyncio.gather(
        *(
            inbox.add(f"evt_{number}", "wh_1", order_key="s1", body=b"{}", cursor=None, now=0)
            for number in range(count)
        ),
        return_exceptions=True,
    )


async def test_messages_that_arrive_together_are_committed_together_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    commit_together = inbox_file.InboxFile.commit_together

    def record_size(self: inbox_file.InboxFile, works: Any) -> list[Any]:
        sizes.append(len(works))
        return commit_together(self, works)

    inbox = SQLiteInbox(tmp_path / "inbox.db")
    await inbox.open(now=0)
    monkeypatch.setattr(inbox_file.InboxFile, "commit_together", record_size)

    assert await add_together(inbox, 100) == list(range(1, 101))
    assert sizes == [64, 36]
    await inbox.close()


async def test_a_refused_message_does_not_undo_those_that_are_committed_with_it(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db", pending_max=2)
    await inbox.open(now=0)

    added = await add_together(inbox, 4)
    await inbox.close()

    assert added[:2] == [1, 2]
    assert all(isinstance(each, inbox_file.InboxFull) for each in added[2:])
    assert read_rows(tmp_path, "SELECT message_id FROM messages") == [("evt_0",), ("evt_1",)]


async def test_messages_whose_commit_fails_are_not_acknowledged_and_take_no_room(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db", pending_max=2)
    await inbox.open(now=0)

    run = inbox_file.InboxFile._run_in_savepoint  # pyright: ignore[reportPrivateUsage] - a seam

    def fail_afterwards(self: inbox_file.InboxFile, work: Any) -> Any:
        run(self, work)
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox_file.InboxFile, "_run_in_savepoint", fail_afterwards)
        failed = await add_together(inbox, 2)
    added = await add_together(inbox, 2)
    await inbox.close()

    assert all(isinstance(each, sqlite3.OperationalError) for each in failed)
    assert added == [1, 2]


def test_messages_that_do_not_all_fit_are_refused_together_and_take_no_room(tmp_path: Path) -> None:
    connection = open_private_file(tmp_path / "inbox.db", RECEIVER_FORMAT, busy_seconds=0)
    limits = InboxLimits(pending_max=2, pending_bytes_max=1_000, remembered_max=1, remembered_seconds=1)
    with closing(InboxFile(connection, limits)) as file:
        messages = [
            NewMessage(message_id=f"evt_{number}", scope="log", order_key="s1", body=b"{}") for number in range(3)
        ]
        (refused,) = file.commit_together([lambda: file.add_all(messages, cursor="c3", now=0)])
        assert (file.read_pending(), file.read_cursor()) == ([], None)
        (added,) = file.commit_together([lambda: file.add_all(messages[:2], cursor="c2", now=0)])

        assert isinstance(refused, inbox_file.InboxFull)
        assert [message.number for message in file.read_pending()] == added
        assert file.read_cursor() == "c2"


async def test_a_cancelled_sender_does_not_keep_others_from_being_answered(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db")
    await inbox.open(now=0)

    cancelled = asyncio.create_task(inbox.add("evt_x", "wh_1", order_key="s1", body=b"{}", cursor=None, now=0))
    added = asyncio.create_task(add_together(inbox, 1))
    await asyncio.wait([cancelled], timeout=0)
    cancelled.cancel()

    assert await asyncio.wait_for(added, WAIT_SECONDS) == [2]
    await inbox.close()
    with pytest.raises(RuntimeError, match="closed"):
        await inbox.save_cursor("place-1")


async def test_an_end_that_is_cancelled_while_a_commit_is_slow_closes_the_file_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, gate = SQLiteInbox(tmp_path / "inbox.db"), threading.Event()
    await inbox.open(now=0)

    def wait_for_disk(_: InboxFile, works: Sequence[Any]) -> list[Any]:
        gate.wait(WAIT_SECONDS)
        return [None for _ in works]

    monkeypatch.setattr(InboxFile, "commit_together", wait_for_disk)
    closed = note_closed_files(monkeypatch)
    saving = asyncio.create_task(inbox.save_cursor("place-1"))
    await asyncio.wait([saving], timeout=0)

    closing = asyncio.create_task(inbox.close())
    async with asyncio.timeout(WAIT_SECONDS):
        while not closing.done():
            await asyncio.wait([closing], timeout=0)
            closing.cancel()
    gate.set()

    await asyncio.wait_for(closed.wait(), WAIT_SECONDS)
    with pytest.raises(InboxClosed):
        await saving


async def test_a_start_that_is_cancelled_while_the_file_is_being_opened_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, gate, begun = SQLiteInbox(tmp_path / "inbox.db"), threading.Event(), threading.Event()

    def open_slowly(*arguments: Any, **options: Any) -> sqlite3.Connection:
        begun.set()
        gate.wait(WAIT_SECONDS)
        return open_private_file(*arguments, **options)

    monkeypatch.setattr(sqlite_inbox, "open_private_file", open_slowly)
    closed = note_closed_files(monkeypatch)

    opening = asyncio.create_task(inbox.open(now=0))
    assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
    async with asyncio.timeout(WAIT_SECONDS):
        while not opening.done():
            opening.cancel()
            await asyncio.wait([opening], timeout=0)
    gate.set()

    await asyncio.wait_for(closed.wait(), WAIT_SECONDS)


async def test_an_inbox_may_be_ended_twice_at_once(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db")
    await inbox.open(now=0)

    await asyncio.gather(inbox.close(), inbox.close())

    with pytest.raises(InboxClosed):
        await inbox.save_cursor("place-1")


def note_closed_files(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The event is set when a file of an inbox is closed by its inbox, and not only by a collection."""
    closed, loop, close = asyncio.Event(), asyncio.get_running_loop(), InboxFile.close

    def close_and_note(self: InboxFile) -> None:
        close(self)
        loop.call_soon_threadsafe(closed.set)

    monkeypatch.setattr(InboxFile, "close", close_and_note)
    return closed
