"""Copies an installation from SQLite to PostgreSQL.

    source    rows of the SQLite file, in the order of their keys, in batches
    target    the same rows of the PostgreSQL database, and their replacement
    copier    compares the two batch by batch, and repairs what differs

A batch is the next rows of a table and everything that the target has in their range of keys. What differs is deleted and
inserted in one transaction, and then read again and compared once more. So one algorithm copies, continues after an
interruption, brings a copy up to date that was made while the service ran, and verifies every row of it:

    ringback copy, the service runs     most rows are copied; they go on changing
    the service stops
    ringback copy, again                under the file's lock: only what has changed is written, and every row is compared

Until the last step the target has a table `unfinished_copy`, with which no store opens it. After it the source has a mark, with
which no service opens it (`sqlite.use_mark`).
"""
