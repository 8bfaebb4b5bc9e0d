-- A file that is complete by itself. The store turns the log on again.
-- name: keep_no_log
PRAGMA journal_mode = DELETE;
