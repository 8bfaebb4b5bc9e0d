"""Implementations of `domain.ports.Store`: the database of calls, events, webhooks and deliveries.

    open.py      opens the store behind a URL
    records.py   the columns of every record, for the column types of one database
    codec.py     column codecs: select lists, inserts, and rows to records and back
    queries.py   loads named statements from .sql files; no other file contains a statement
    signals.py   waiters and their notifications, within one process
    sqlite/      the default store: one file, and no service to start

A second database gets a folder with its column types, its connections and the same statements in its dialect. It runs the same
suite: tests/conformance. A store reads and writes rows, and promises what the ports say. The rules are in the layers above.
"""
