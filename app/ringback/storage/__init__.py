"""Implementations of `domain.ports.Store`: the database of calls, events, webhooks and deliveries.

    open.py      opens the store behind a URL
    records.py   the columns of every record, for the column types of one database
    codec.py     column codecs: select lists, inserts, and rows to records and back
    queries.py   loads named statements from .sql files; but for copying/, no other file contains a statement
    signals.py   waiters and their notifications, within one process
    rows/        the row classes of every store, on named statements
    sqlite/      the default store: one file, and no service to start
    postgres/    the store of many nodes
    migrations.py  numbered migrations, and which code may run on a database
    schema.py    reads the state of a database's schema
    copying/     copies an installation from SQLite to PostgreSQL; its statements are made from the names of tables and columns

A dialect is a folder with its connections, its units of work and the same statements: a diff of the two sql/ folders lists the
differences. Both run the same suite: tests/conformance. A store reads and writes rows, and promises what the ports say. The
rules are in the layers above.
"""
