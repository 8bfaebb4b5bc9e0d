-- name: make_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    number      INTEGER PRIMARY KEY,
    sha256      TEXT NOT NULL,
    applied_at  INTEGER NOT NULL,
    oldest_code INTEGER
) STRICT;

-- name: has_table
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations') AS has_table;

-- name: has_oldest_code
SELECT EXISTS (SELECT 1 FROM pragma_table_info('schema_migrations') WHERE name = 'oldest_code') AS has_oldest_code;

-- name: add_oldest_code
ALTER TABLE schema_migrations ADD COLUMN oldest_code INTEGER;

-- A migration that was recorded without its oldest code needs code that knows it.
-- name: applied
SELECT number, sha256, coalesce(oldest_code, number) AS oldest_code FROM schema_migrations ORDER BY number;

-- name: applied_before_oldest_code
SELECT number, sha256, number AS oldest_code FROM schema_migrations ORDER BY number;

-- name: record
INSERT INTO schema_migrations (number, sha256, applied_at, oldest_code)
VALUES (:number, :sha256, :applied_at, :oldest_code);
