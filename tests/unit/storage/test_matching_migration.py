"""After its migration an older database matches its webhooks as if they were registered again."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from itertools import product
from pathlib import Path

from ringback.domain.event import EventName
from ringback.domain.ids import CallId
from ringback.domain.webhook import Webhook, WebhookOrigin, WebhookState
from ringback.storage.migrations import Migration
from ringback.storage.rows.columns import RECORDS
from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from tests.support.builders import make_webhook
from tests.support.clock import START

LAST_VERSION_WITHOUT_INDEX = [migration for migration in load_migrations() if migration.number < 3]


def make_webhooks() -> Sequence[Webhook]:
    """Webhooks with and without each filter, in each state, and of each origin."""
    some: list[Webhook] = []
    for upstream, tool, call_id, session, matched in product(
        (None, "git"), (None, "t"), (None, "c"), (None, "s"), (0, 1)
    ):
        some.append(
            make_webhook(
                upstream=upstream,
                tool=tool,
                call_id=CallId(call_id) if call_id else None,
                client_session_id=session,
                correlation_id="label",
                match_correlation=bool(matched),
            )
        )
    some += [make_webhook(state=state) for state in WebhookState]
    some += [make_webhook(origin=origin, call_id=CallId("c")) for origin in WebhookOrigin]
    some += [make_webhook(events=frozenset(EventName), upstream="git", resource_uri=uri) for uri in (None, "file:///ä")]
    return [*some, make_webhook(events=frozenset()), make_webhook(expires_at=START + timedelta(days=1))]


def matches(path: Path, webhooks: Sequence[Webhook], before: Sequence[Migration]) -> set[tuple[object, ...]]:
    """The match keys of webhooks that were registered after these migrations and before the later ones."""
    with closing(connect(path, lock_wait_seconds=0)) as connection:
        apply_migrations(connection, before, now=START)
        insert(connection, webhooks)
        apply_migrations(connection, load_migrations(), now=START)
        return {tuple(row) for row in connection.execute("SELECT * FROM webhook_matches")}


def insert(connection: sqlite3.Connection, webhooks: Sequence[Webhook]) -> None:
    """Insert the columns that the table has at this point of its migrations."""
    columns = [row["name"] for row in connection.execute("SELECT name FROM pragma_table_info('webhooks')")]
    names, values = ", ".join(f'"{name}"' for name in columns), ", ".join(f":{name}" for name in columns)
    statement = f"INSERT INTO webhooks ({names}) VALUES ({values})"  # noqa: S608 - its own names
    for webhook in webhooks:
        connection.execute(statement, RECORDS.webhook.encode(webhook))


def test_webhooks_from_before_the_migration_are_found_like_later_ones(tmp_path: Path) -> None:
    webhooks = make_webhooks()

    migrated = matches(tmp_path / "old.db", webhooks, LAST_VERSION_WITHOUT_INDEX)
    fresh = matches(tmp_path / "new.db", webhooks, load_migrations())

    assert migrated == fresh
    assert len(migrated) > len(webhooks)
