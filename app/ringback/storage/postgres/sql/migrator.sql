-- name: version
SELECT current_setting('server_version_num')::bigint AS number;

-- name: is_standby
SELECT pg_is_in_recovery() AS is_standby;

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED;

-- Nodes that start at the same time migrate one after the other, for as long as it takes. The number is any that no other program
-- uses in this database.
-- name: wait_as_long_as_needed
SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(2026112213);

-- A table that a migration changes may be in use. While the migration waits for it, all others wait, too.
-- name: wait_briefly_for_tables
SET LOCAL lock_timeout = '10s';

-- name: make_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    number      bigint PRIMARY KEY,
    sha256      text NOT NULL,
    applied_at  bigint NOT NULL,
    oldest_code bigint NOT NULL
);

-- name: has_table
SELECT to_regclass('schema_migrations') IS NOT NULL AS has_table;

-- name: has_unfinished_copy
SELECT to_regclass('unfinished_copy') IS NOT NULL AS has_unfinished_copy;

-- Also of roles whose tables this one may not read.
-- name: other_installations
SELECT nspname::text AS name FROM pg_namespace
WHERE oid <> (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('schema_migrations'))
AND (SELECT count(*) FROM pg_class WHERE relnamespace = pg_namespace.oid AND relname IN ('schema_migrations', 'calls')) = 2
ORDER BY nspname;

-- name: applied
SELECT number, sha256, oldest_code FROM schema_migrations ORDER BY number;

-- name: record
INSERT INTO schema_migrations (number, sha256, applied_at, oldest_code)
VALUES (:number, :sha256, (extract(epoch FROM now()) * 1000)::bigint, :oldest_code);

-- name: commit
COMMIT;
