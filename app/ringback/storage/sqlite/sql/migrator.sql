-- name: make_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    number     INTEGER PRIMARY KEY,
    sha256     TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- name: applied
SELECT number, sha256 FROM schema_migrations ORDER BY number;

-- name: record
INSERT INTO schema_migrations (number, sha256, applied_at) VALUES (:number, :sha256, :applied_at);
