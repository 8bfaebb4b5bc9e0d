-- name: use_wal
PRAGMA journal_mode = WAL;

-- name: sync_every_commit
PRAGMA synchronous = FULL;

-- Pages that change with every commit (heads of logs, ends of indexes) are copied to the file once in 16,000 pages of log
-- (64 MB) instead of once in 1,000, the default. A slow reader finds them in the log either way.
-- name: checkpoint_rarely
PRAGMA wal_autocheckpoint = 16000;

-- A command beside a service leaves the copying to the service: two processes must not copy at once (`checkpointer`).
-- name: checkpoint_never
PRAGMA wal_autocheckpoint = 0;

-- A log that grew beyond that, while a backup or another long reader kept its state, is cut to 64 MB when it begins anew. Without a
-- limit it keeps its size until the service stops.
-- name: limit_log
PRAGMA journal_size_limit = 67108864;

-- 32 MB. The default of 2 MB is too small for the upper levels of the indexes after a busy day, and every miss is a read. Pages are
-- kept until the cache is full, also those that are not needed again, so a service grows by its size in the first hour.
-- name: cache_for_writer
PRAGMA cache_size = -32768;

-- 8 MB for each reader of lists: there are several, and most of their pages are in the operating system's cache.
-- name: cache_for_reader
PRAGMA cache_size = -8192;

-- The journals of savepoints and statements stay in memory. By default they move to a temporary file after 64 KB, which is
-- sixteen pages, and so with nearly every unit.
-- name: keep_journals_in_memory
PRAGMA temp_store = MEMORY;

-- name: check_references
PRAGMA foreign_keys = ON;

-- Readers need no lock of the writer (WAL). If another process has one (it repairs the log's index after a crash, say), the reader
-- fails at once with "try again": neither the event loop nor one of the few reading threads may block.
-- name: never_wait
PRAGMA busy_timeout = 0;

-- name: forbid_writing
PRAGMA query_only = ON;

-- The first damage that a check finds without comparing each index with its table.
-- name: check_integrity
PRAGMA quick_check (1);

-- name: begin_writing
BEGIN IMMEDIATE;

-- name: begin_reading
BEGIN DEFERRED;

-- A transaction that reads keeps the state of the file from its first statement on.
-- name: keep_state
SELECT 1 FROM sqlite_schema LIMIT 1;

-- name: commit
COMMIT;

-- name: savepoint
SAVEPOINT unit;

-- name: rollback_to_savepoint
ROLLBACK TO unit;

-- name: release_savepoint
RELEASE unit;

-- While a service uses the file (`use_mark`).
-- name: mark_in_use
PRAGMA user_version = 1;

-- name: mark_complete
PRAGMA user_version = 0;

-- After a copy to another database.
-- name: mark_moved
PRAGMA user_version = 2;

-- Waits for no reader and no writer, and moves what none of them uses.
-- name: move_log_into_file
PRAGMA wal_checkpoint (PASSIVE);

-- A file that is complete by itself. The store turns the log on again.
-- name: keep_no_log
PRAGMA journal_mode = DELETE;
