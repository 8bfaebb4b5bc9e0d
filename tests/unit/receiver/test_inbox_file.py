"""The file of an inbox: its rights, its lock, and what is refused, left as it is, or opened later."""

import asyncio
import json
import sqlite3
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

import pytest

from ringback.client import Event
from ringback.private_sqlite import open_private_file
from ringback.receiver import Callback, InboxUnavailable, ReceiverApp, SQLiteInbox, inbox_file, sqlite_inbox
from ringback.receiver.deduplicator import compute_scope
from ringback.receiver.envelopes import parse
from ringback.signing.standard_webhooks import VerifiedMessage
from tests.support.inbox_receivers import Handler, abandon, make_app, never
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed

MESSAGE: Final = VerifiedMessage(message_id="evt_1", timestamp=0, key_fingerprint="0123456789abcdef")


FORKED: Final = """
import asyncio, os, selectors, sys
from ringback.receiver import SQLiteInbox

async def add(inbox, message_id):
    await inbox.add(message_id, "scope", order_key="session", body=b"{}", cursor=None, now=0)

async def open_inbox():
    inbox = SQLiteInbox(sys.argv[1])
    await inbox.open(now=0)
    await add(inbox, "before")
    return inbox

async def use_in_child(inbox):
    for use in (inbox.read_pending(), add(inbox, "child's"), inbox.close()):
        try:
            await use
        except RuntimeError as error:
            print(error, flush=True)

loop = asyncio.SelectorEventLoop(selectors.PollSelector())  # the processes would share an epoll
inbox = loop.run_until_complete(open_inbox())
if os.fork() == 0:
    asyncio.run(use_in_child(inbox))
    sys.exit()
os.wait()
loop.run_until_complete(add(inbox, "after"))
os._exit(0)  # as if it was killed: nothing is closed
"""


async def run_forked(path: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORKED, str(path), stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    return output.decode()


def list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    async with make_app(tmp_path, never):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in list_files(tmp_path)}

    assert set(modes.values()) == {0o600}


async def test_a_second_process_with_the_same_inbox_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_inbox, "LOCK_WAIT_SECONDS", 0)
    async with make_app(tmp_path, never):
        with pytest.raises(InboxUnavailable, match="run one worker"):
            await make_app(tmp_path, never).open()


async def test_a_forked_child_neither_uses_the_inbox_of_its_parent_nor_removes_its_log(tmp_path: Path) -> None:
    """The child waited for ever for a thread of its parent. Its end removed the log to which the parent went on to write."""
    output = await run_forked(tmp_path / "inbox.db")
    inbox = SQLiteInbox(tmp_path / "inbox.db")
    await inbox.open(now=0)
    stored = [message.message_id for message in await inbox.read_pending()]
    await inbox.close()

    assert stored == ["before", "after"]
    assert output == 2 * "This inbox belongs to the process that opened it. Open one of its own here.\n"


async def test_a_file_that_is_no_inbox_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inbox.db").write_text("notes of mine, certainly longer than a hundred bytes" * 10, encoding="utf-8")
    with pytest.raises(InboxUnavailable, match="not an inbox"):
        await make_app(tmp_path, never).open()
    with pytest.raises(InboxUnavailable, match="cannot be opened"):
        await make_app(tmp_path / "missing", never).open()


async def test_the_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as connection:
        connection.execute("CREATE TABLE messages (text)")
        with pytest.raises(InboxUnavailable, match="another program's database"):
            await make_app(tmp_path, never).open()
        connection.execute("INSERT INTO messages VALUES ('mine')")
        connection.commit()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


async def test_the_inbox_of_a_later_version_is_refused(tmp_path: Path) -> None:
    async with make_app(tmp_path, never):
        pass
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InboxUnavailable, match="later version"):
        await make_app(tmp_path, never).open()


async def test_a_receiver_whose_inbox_cannot_be_opened_asks_the_sender_to_come_again(tmp_path: Path) -> None:
    answer = await post_signed(make_app(tmp_path / "missing", never), make_event_body())

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
    assert str(tmp_path) not in answer.text


async def test_a_receiver_whose_inbox_could_not_be_read_opens_it_at_the_next_try(tmp_path: Path) -> None:
    handler = Handler()
    app = make_app(tmp_path, handler.handle)

    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: Any) -> list[Any]:
            raise sqlite3.OperationalError("disk I/O error")

        patch.setattr(inbox_file.InboxFile, "read_pending", refuse)
        answer = await post_signed(app, make_event_body("evt_1"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        with pytest.raises(sqlite3.OperationalError):
            await app.open()
    async with app:
        assert (await post_signed(app, make_event_body("evt_1"))).status_code == 204
        await handler.wait_until_handled(1)


class SmallDisk:
    """What SQLite has on a full disk: a limit to the pages of a database."""

    def __init__(self, *, pages: int) -> None:
        self.pages = pages

    def open_file(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = open_private_file(*arguments, **options)
        connection.execute(f"PRAGMA max_page_count = {self.pages}")
        return connection


@pytest.mark.requirement("R35")
async def test_a_full_disk_refuses_until_there_is_room_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk, handler = SmallDisk(pages=32), Handler()
    monkeypatch.setattr(sqlite_inbox, "open_private_file", disk.open_file)
    callbacks = [make_event_body(f"evt_{number}", result="x" * 8_000) for number in range(20)]

    full = make_app(tmp_path, never)
    await full.open()
    answers = [await post_signed(full, callback) for callback in callbacks]
    await abandon(full)
    disk.pages = 1_000
    async with make_app(tmp_path, handler.handle) as app:
        repeated = [await post_signed(app, callback) for callback in callbacks]
        await handler.wait_until_handled(len(callbacks))

    statuses = [answer.status_code for answer in answers]
    assert statuses == sorted(statuses)
    assert {*statuses} == {204, 503}
    assert answers[-1].headers["retry-after"] == "30"
    assert {answer.status_code for answer in repeated} == {204}
    assert handler.handled == [callback["eventId"] for callback in callbacks]
    assert "disk is full" in caplog.text
    assert "no such savepoint" not in caplog.text


async def test_an_inbox_is_opened_once(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db")
    await inbox.open(now=0)

    with pytest.raises(RuntimeError, match="open already"):
        await inbox.open(now=0)
    await inbox.close()
    await inbox.close()


class Log:
    """The service's event log: each callback is sent once everything before its event was delivered."""

    def __init__(self, count: int) -> None:
        self.bodies = [
            {
                **make_event_body(f"evt_{number}", call_id=f"call_{number}", subscription_id="wh_1"),
                "cursor": str(number),
            }
            for number in range(count)
        ]

    async def fetch_since(self, cursor: str) -> AsyncGenerator[Event]:
        for number, body in enumerate(self.bodies):
            if number >= int(cursor):
                yield Event.model_validate({**body, "cursor": str(number + 1)})


async def test_a_start_hands_over_no_event_again_whose_callback_the_inbox_has_forgotten(tmp_path: Path) -> None:
    """With a hundred callbacks a minute, a file forgets the first ones of a process that runs for a day."""
    log, handled, all_handled = Log(10), list[str](), asyncio.Event()

    async def handle(callback: Callback) -> None:
        handled.append(callback.event_id)
        if len(handled) == len(log.bodies):
            all_handled.set()

    def make_receiver() -> ReceiverApp:
        inbox = SQLiteInbox(tmp_path / "inbox.db", remembered_max=4)
        return ReceiverApp(SECRET, on_callback=handle, inbox=inbox, fetch_since=log.fetch_since, clock=lambda: NOW)

    async with make_receiver() as receiver:
        for body in log.bodies:
            assert (await post_signed(receiver, body)).status_code == 204
        await asyncio.wait_for(all_handled.wait(), WAIT_SECONDS)
    async with make_receiver() as receiver:
        fetching = receiver._fetching  # pyright: ignore[reportPrivateUsage] - it handles nothing again, which is seen at its end
        await asyncio.wait_for(cast("asyncio.Task[None]", fetching), WAIT_SECONDS)

    assert sorted(handled) == sorted({body["eventId"] for body in log.bodies})


async def test_the_place_to_which_the_log_was_read_stays_when_callbacks_before_it_are_forgotten(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db", remembered_max=1)
    await inbox.open(now=0)
    for number in range(4):
        await inbox.add(f"evt_{number}", "wh_1", order_key="", body=b"{}", cursor=str(number), now=0)
        await inbox.record_end(number + 1, keep_body=False, now=0)
    await inbox.save_cursor("100")
    await inbox.close()

    await inbox.open(now=0)
    try:
        assert await inbox.read_cursor() == "100"
    finally:
        await inbox.close()


async def test_the_place_in_the_log_is_never_that_of_another_server(tmp_path: Path) -> None:
    """Ringback names the subscription in the signed body. The cursors of other servers belong to logs of their own."""
    inbox = SQLiteInbox(tmp_path / "inbox.db", remembered_max=4)
    await inbox.open(now=0)
    for number in range(9):
        scope = (
            "wh_1"
            if number < 2
            else compute_scope(MESSAGE, cast("Callback", parse(json.dumps(make_event_body()).encode())))
        )
        await inbox.add(f"evt_{number}", scope, order_key="", body=b"{}", cursor=f"{scope}/{number}", now=0)
        await inbox.record_end(number + 1, keep_body=False, now=0)
    await inbox.close()

    await inbox.open(now=0)
    try:
        assert await inbox.read_cursor() == "wh_1/0"
    finally:
        await inbox.close()
