-- Nodes that start at the same time migrate one after the other. The number is any that no other program uses in this database.
-- name: lock_schema
SELECT pg_advisory_xact_lock(2026112213);

-- name: make_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    number      bigint PRIMARY KEY,
    sha256      text NOT NULL,
    applied_at  bigint NOT NULL,
    oldest_code bigint NOT NULL
);

-- name: exists
SELECT to_regclass('schema_migrations') IS NOT NULL AS "exists";

-- name: applied
SELECT number, sha256, oldest_code FROM schema_migrations ORDER BY number;

-- name: record
INSERT INTO schema_migrations (number, sha256, applied_at, oldest_code)
VALUES (:number, :sha256, :applied_at, :oldest_code);
