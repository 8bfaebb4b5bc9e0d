-- name: use_wal
PRAGMA journal_mode = WAL;

-- name: sync_every_commit
PRAGMA synchronous = FULL;

-- name: check_references
PRAGMA foreign_keys = ON;

-- name: forbid_writing
PRAGMA query_only = ON;

-- name: begin_writing
BEGIN IMMEDIATE;

-- name: begin_reading
BEGIN DEFERRED;

-- name: commit
COMMIT;

-- name: start_unit
SAVEPOINT unit;

-- name: undo_unit
ROLLBACK TO unit;

-- name: end_unit
RELEASE unit;
