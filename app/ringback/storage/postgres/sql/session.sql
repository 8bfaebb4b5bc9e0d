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

-- name: notify
SELECT pg_notify(:channel, :payload);
