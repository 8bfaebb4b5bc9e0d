"""Bodies that code of before their counts has stored in SQLite's file (compare tests/conformance/test_counted_bytes.py)."""

from contextlib import closing
from pathlib import Path

from ringback.storage.rows.columns import RECORDS
from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from tests.support.builders import make_delivery
from tests.support.clock import START


def test_bodies_of_older_code_are_counted_neither_when_they_are_stored_nor_when_they_are_removed(
    tmp_path: Path,
) -> None:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        apply_migrations(connection, load_migrations(), now=START)
        delivery = make_delivery()
        connection.execute(
            f"INSERT INTO deliveries {RECORDS.delivery.insert_lists()}",
            RECORDS.whole_delivery.encode(delivery),
        )
        connection.execute("INSERT INTO bodies (delivery_id, body) VALUES (?, x'0101')", [delivery.id])
        connection.execute("DELETE FROM deliveries")

        assert connection.execute("SELECT count(*) FROM bodies").fetchone()[0] == 0
        assert connection.execute("SELECT count(*) FROM byte_counts").fetchone()[0] == 0
