-- The breakers of origins.

-- A closed breaker has no row that could be locked. In the order of the list, which is sorted. The seed is any that no other lock
-- has.
-- name: lock_origins
SELECT pg_advisory_xact_lock(hashtextextended(origin, 3)) FROM unnest(:origins::text[]) AS locks (origin);

-- name: breakers
SELECT {circuit_breaker in origins}, origin FROM origins WHERE origin = ANY(:origins::text[]);

-- name: save
INSERT INTO origins (origin, failures, openings, paused_until, changed_at)
VALUES (:origin, :failures, :openings, :paused_until, :now)
ON CONFLICT (origin) DO UPDATE SET
    failures = excluded.failures, openings = excluded.openings, paused_until = excluded.paused_until,
    changed_at = excluded.changed_at;

-- name: request_probe
UPDATE origins SET
    paused_until = least(paused_until, greatest(:now, coalesce(probe_requested_at + :spacing, 0))),
    probe_requested_at = least(paused_until, greatest(:now, coalesce(probe_requested_at + :spacing, 0)))
WHERE origin = :origin AND paused_until > :now
RETURNING paused_until;

-- name: close
DELETE FROM origins WHERE origin = :origin;

-- name: remove
WITH old AS MATERIALIZED (
    SELECT origin FROM origins WHERE changed_at < :older_than ORDER BY changed_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM origins USING old WHERE origins.origin = old.origin;
