-- name: use_wal
PRAGMA journal_mode = WAL;

-- name: sync_every_commit
PRAGMA synchronous = FULL;

-- Pages that change with every commit (heads of logs, ends of indexes) are copied to the file once in 16,000 pages of log
-- (64 MB), not once in 1,000 as by default; a reader that is slow finds them in the log either way.
-- name: checkpoint_rarely
PRAGMA wal_autocheckpoint = 16000;

-- The default of 2 MB does not hold the upper levels of the indexes of a busy day, and every miss is a read.
-- name: cache_for_writer
PRAGMA cache_size = -65536;

-- Readers of lists are several, and what they read is mostly in the operating system's cache: 8 MB for each.
-- name: cache_for_reader
PRAGMA cache_size = -8192;

-- What a unit of work or a statement would have to undo is noted in memory. By default it goes to a temporary file after 64 KB,
-- which is sixteen pages, and so with nearly every unit.
-- name: keep_journals_in_memory
PRAGMA temp_store = MEMORY;

-- name: check_references
PRAGMA foreign_keys = ON;

-- Readers need no lock that a writer holds (WAL). What else holds one, another process that repairs the log's index after a
-- crash, say, is answered at once with "try again": the event loop, or one of the few threads for reading, must not stand still.
-- name: never_wait
PRAGMA busy_timeout = 0;

-- name: forbid_writing
PRAGMA query_only = ON;

-- The first damage that shows without comparing each index with its table.
-- name: check_integrity
PRAGMA quick_check (1);

-- name: begin_writing
BEGIN IMMEDIATE;

-- name: begin_reading
BEGIN DEFERRED;

-- name: commit
COMMIT;

-- name: savepoint
SAVEPOINT unit;

-- name: rollback_to_savepoint
ROLLBACK TO unit;

-- name: release_savepoint
RELEASE unit;
