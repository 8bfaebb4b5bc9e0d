-- Each says all that it relies on: an operator may have changed what a plain BEGIN does.

-- name: begin_writing
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- One snapshot for all statements of the unit.
-- name: begin_reading
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- The wall clock of the database, in nanoseconds since 1970, for the clocks of the nodes.
-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint AS nanoseconds;

-- How long ago a node saved how far the nodes are ahead, in milliseconds, and whether another node of this installation is connected.
-- name: shared_clock
SELECT
    ahead, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - saved_at AS age,
    EXISTS (
        SELECT 1 FROM pg_locks
        WHERE locktype = 'advisory' AND classid = 2026112215 AND objsubid = 1 AND pid <> pg_backend_pid()
            AND objid = (SELECT relnamespace FROM pg_class WHERE oid = 'shared_clock'::regclass)
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS has_nodes
FROM shared_clock WHERE id = 1;

-- The nodes agree, so one that finds the row locked leaves it to the other.
-- name: save_shared_clock
UPDATE shared_clock SET ahead = :ahead, saved_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
WHERE id = (SELECT id FROM shared_clock WHERE id = 1 FOR UPDATE SKIP LOCKED);

-- Until the session ends.
-- name: show_node
SELECT pg_advisory_lock_shared((2026112215::bigint << 32) | relnamespace::bigint) FROM pg_class
WHERE oid = 'shared_clock'::regclass;

-- Each installation of a database has a channel of its own, by the schema of its tables. The process of the session is asked for,
-- because a pooler gives the driver a number of its own.
-- name: channel
SELECT CASE nspname WHEN 'public' THEN 'ringback' ELSE 'ringback_' || oid END AS channel, pg_backend_pid() AS pid
FROM pg_namespace
WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('schema_migrations'));

-- A setting of no meaning to PostgreSQL, which only this session has.
-- name: mark_session
SELECT set_config('ringback.session', :mark, false);

-- name: session_mark
SELECT current_setting('ringback.session', true) AS mark;

-- name: notify
SELECT pg_notify(:channel, :payload);

-- The server, for `ringback doctor`. Some connections are reserved for superusers.
-- name: describe_server
SELECT
    current_setting('server_version') AS version,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint AS connections_max,
    pg_is_in_recovery() AS is_standby,
    current_setting('fsync')::boolean AS is_durable;
