-- name: mark_in_use
PRAGMA user_version = 1;

-- name: mark_complete
PRAGMA user_version = 0;

-- Waits for nobody.
-- name: move_log_into_file
PRAGMA wal_checkpoint (PASSIVE);
