"""Copies of a message are recognised by signed facts: its `webhook-id`, and its subscription or the secret that verified it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.receiver import ReceiverApp, SQLiteInbox
from ringback.receiver.deduplicator import FETCHED
from ringback.signing.secrets import generate_secret
from tests.support.inbox_receivers import Handler, make_app, read_rows
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed

OTHER_SECRET: Final = generate_secret(b"o" * 32)
VERSION_1: Final = """
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, subscription_id TEXT NOT NULL,
    order_key TEXT NOT NULL, body BLOB, arrived_at REAL NOT NULL, ended_at REAL, given_up INTEGER NOT NULL DEFAULT 0,
    UNIQUE (message_id, subscription_id)
) STRICT;
CREATE INDEX messages_pending ON messages (number) WHERE ended_at IS NULL;
CREATE INDEX messages_ended ON messages (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX messages_waitable ON messages (number) WHERE ended_at IS NOT NULL AND body IS NOT NULL;
CREATE TABLE cursor (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value TEXT NOT NULL) STRICT;
PRAGMA application_id = 0x52424B49;
PRAGMA user_version = 1;
INSERT INTO messages VALUES (3, 'evt_1', 'wh_1', 's1', NULL, {0}, {0}, 0), (4, 'evt_2', '*', 's1', NULL, {0}, {0}, 0);
INSERT INTO cursor VALUES (1, 'place-3');
"""


VERSION_2: Final = """
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, scope TEXT NOT NULL, subscription_id TEXT,
    order_key TEXT NOT NULL, body BLOB, arrived_at REAL NOT NULL, ended_at REAL, given_up INTEGER NOT NULL DEFAULT 0,
    UNIQUE (message_id, scope)
) STRICT;
CREATE INDEX messages_pending ON messages (number) WHERE ended_at IS NULL;
CREATE INDEX messages_ended ON messages (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX messages_waitable ON messages (number) WHERE ended_at IS NOT NULL AND body IS NOT NULL;
CREATE TABLE cursor (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value TEXT NOT NULL) STRICT;
PRAGMA application_id = 0x52424B49;
PRAGMA user_version = 2;
INSERT INTO messages VALUES
    (3, 'evt_1', 'wh_1', 'wh_1', 's1', NULL, {0}, {0}, 0), (4, 'evt_2', '*', NULL, 's1', NULL, {0}, {0}, 0);
INSERT INTO cursor VALUES (1, 'place-3');
"""


def create_receiver(folder: Path, handler: Handler, *secrets: str, durable: bool) -> ReceiverApp:
    inbox = SQLiteInbox(folder / "inbox.db") if durable else None
    return ReceiverApp(secrets or [SECRET], on_callback=handler.handle, inbox=inbox, clock=lambda: NOW)


@pytest.mark.requirement("R23")
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("signed_id", ["wh_1", None])
async def test_a_message_that_is_sent_again_with_made_up_subscription_headers_is_handled_once(
    tmp_path: Path, signed_id: str | None, *, durable: bool
) -> None:
    handler = Handler()

    async with create_receiver(tmp_path, handler, durable=durable) as app:
        for header in ("wh_1", "wh_2", "anything", None):
            posted = await post_signed(app, make_event_body(subscription_id=signed_id), subscription_id=header)
            assert posted.status_code == 204
        await post_signed(app, make_event_body("evt_2"))
        await handler.wait_until_handled(2)

    assert sorted(handler.tried) == ["evt_1", "evt_2"]


@pytest.mark.parametrize("durable", [False, True])
async def test_an_event_of_two_subscriptions_with_one_secret_is_handled_for_each_that_the_body_names(
    tmp_path: Path, *, durable: bool
) -> None:
    handler = Handler()

    async with create_receiver(tmp_path, handler, durable=durable) as app:
        for signed_id in ("wh_1", "wh_2", "wh_1"):
            await post_signed(app, make_event_body(subscription_id=signed_id))
        await handler.wait_until_handled(2)

    assert handler.tried == ["evt_1", "evt_1"]


@pytest.mark.parametrize("durable", [False, True])
async def test_an_event_of_two_subscriptions_that_only_the_header_names_is_handled_once_for_each_secret(
    tmp_path: Path, *, durable: bool
) -> None:
    handler = Handler()

    async with create_receiver(tmp_path, handler, SECRET, OTHER_SECRET, durable=durable) as app:
        for secret, header in ((SECRET, "sub_1"), (OTHER_SECRET, "sub_2"), (SECRET, "sub_2")):
            await post_signed(app, make_event_body(), secret=secret, subscription_id=header)
        await handler.wait_until_handled(2)

    assert handler.tried == ["evt_1", "evt_1"]


async def test_the_signed_subscription_is_believed_and_not_the_header(tmp_path: Path) -> None:
    async with create_receiver(tmp_path, Handler(), durable=True) as app:
        await post_signed(app, make_event_body(subscription_id="wh_1"), subscription_id="wh_9")
        await post_signed(app, make_event_body("evt_2", correlation_id="c2"), subscription_id="wh_9")
        named = await app.wait_for(correlation_id="c1", timeout_seconds=60)
        unnamed = await app.wait_for(correlation_id="c2", timeout_seconds=60)

    assert (named.subscription_id, unnamed.subscription_id) == ("wh_1", "wh_9")


@pytest.mark.parametrize("earlier", [VERSION_1, VERSION_2], ids=["1", "2"])
async def test_an_inbox_of_an_earlier_version_keeps_what_it_remembers(tmp_path: Path, earlier: str) -> None:
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as connection:
        connection.executescript(earlier.format(NOW.timestamp()))
    handler = Handler()

    async with make_app(tmp_path, handler.handle) as app:
        await post_signed(app, make_event_body("evt_1", subscription_id="wh_1"))
        await post_signed(app, make_event_body("evt_2", subscription_id="wh_1"))
        await post_signed(app, make_event_body("evt_3", subscription_id="wh_1"))
        await handler.wait_until_handled(1)

    assert handler.tried == ["evt_3"]
    assert read_rows(tmp_path, "SELECT number, scope FROM messages ORDER BY number") == [
        (3, "wh_1"),
        (4, FETCHED),
        (5, "wh_1"),
    ]
    assert read_rows(tmp_path, "SELECT name, value FROM settings WHERE name = 'cursor'") == [("cursor", "place-3")]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("named", [{"id": 1}, ["a"], 7, True, "\ud83d", ""], ids=repr)
async def test_an_event_whose_data_has_something_else_as_its_subscription_id_is_handled_once(
    tmp_path: Path, named: Any, *, durable: bool
) -> None:
    """In the data of events that are not of calls, each member may be anything."""
    handler = Handler()
    body = make_event_body(name="order.paid", subscription_id=named)
    async with create_receiver(tmp_path, handler, durable=durable) as receiver:
        answers = [
            (await post_signed(receiver, json.dumps(body).encode(), message_id="evt_1")).status_code for _ in "12"
        ]
        assert answers == [204, 204]
        await handler.wait_until_handled(1)

    assert handler.tried == ["evt_1"]
