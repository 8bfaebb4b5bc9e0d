-- The breakers of origins.

-- The only writer holds every origin already.
-- name: lock_origins
SELECT 1 WHERE :origins IS NULL;

-- name: breakers
SELECT {circuit_breaker in origins}, origin FROM origins WHERE origin IN (SELECT value FROM json_each(:origins));

-- name: save
INSERT INTO origins (origin, failures, openings, paused_until, changed_at)
VALUES (:origin, :failures, :openings, :paused_until, :now)
ON CONFLICT (origin) DO UPDATE SET
    failures = excluded.failures, openings = excluded.openings, paused_until = excluded.paused_until,
    changed_at = excluded.changed_at;

-- name: request_probe
UPDATE origins SET
    paused_until = min(paused_until, max(:now, coalesce(probe_requested_at + :spacing, 0))),
    probe_requested_at = min(paused_until, max(:now, coalesce(probe_requested_at + :spacing, 0)))
WHERE origin = :origin AND paused_until > :now
RETURNING paused_until;

-- name: close
DELETE FROM origins WHERE origin = :origin;

-- name: remove
DELETE FROM origins WHERE origin IN (
    SELECT origin FROM origins WHERE changed_at < :older_than ORDER BY changed_at LIMIT :limit
);
