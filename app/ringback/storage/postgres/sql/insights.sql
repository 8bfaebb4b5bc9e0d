-- Its own statement, because a statement sees what was committed before it. The seed is any that no other lock has.
-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended('insight_positions', 7));

-- name: positions
SELECT positions FROM insight_positions WHERE id = 1;

-- name: save_positions
INSERT INTO insight_positions (id, positions) VALUES (1, :positions)
ON CONFLICT (id) DO UPDATE SET positions = excluded.positions;

-- What is counted, each along its index, `limit` rows at most. '~' sorts after every id.
-- name: starts
SELECT id, principal, upstream, created_at FROM calls
WHERE id > :after AND id < coalesce(:until_id::text, '~')
ORDER BY id LIMIT :limit;

-- Events of other names are returned, too: the next step begins after them. A call that has expired has no outcome any more.
-- name: ends
SELECT
    scanned.principal, scanned.seq, scanned.created_at AS instant,
    calls.upstream, calls.outcome, calls.dispatched_at
FROM (
    SELECT principal, seq, created_at, name, call_id FROM events
    WHERE (created_at, principal, seq) > (:instant::bigint, :after_principal::text, :after_seq::bigint)
        AND created_at < coalesce(:until::bigint, 9223372036854775807)
    ORDER BY created_at, principal, seq LIMIT :limit
) AS scanned
LEFT JOIN calls ON calls.id = scanned.call_id AND scanned.name = 'call.finished'
ORDER BY scanned.created_at, scanned.principal, scanned.seq;

-- name: deliveries
SELECT id, principal, state, created_at, finished_at FROM deliveries
WHERE state IN ('delivered', 'dead', 'cancelled') AND finished_at IS NOT NULL
    AND (finished_at, id) > (:instant::bigint, :after::text) AND finished_at < coalesce(:until::bigint, 9223372036854775807)
ORDER BY finished_at, id LIMIT :limit;

-- name: attempts
SELECT scanned.id, scanned.category, deliveries.principal
FROM (
    SELECT id, delivery_id, category FROM attempts
    WHERE id > :after AND id < coalesce(:until_id::text, '~')
    ORDER BY id LIMIT :limit
) AS scanned
LEFT JOIN deliveries ON deliveries.id = scanned.delivery_id
ORDER BY scanned.id;

-- name: erased
SELECT erasures.principal FROM unnest(:principals::text[]) AS wanted (name)
JOIN erasures ON erasures.principal = wanted.name
    AND erasures.kind = 'principal' AND erasures.finished_at IS NULL
UNION
SELECT principal FROM erasures WHERE finished_at >= :since AND kind = 'principal';

-- A row is [principal, upstream, hour].
-- name: hours_of_keys
SELECT insight_hours.principal, insight_hours.upstream, insight_hours.hour, insight_hours.counts
FROM json_array_elements(:keys::json) AS wanted (value)
JOIN insight_hours ON insight_hours.principal = wanted.value ->> 0 AND insight_hours.upstream = wanted.value ->> 1
    AND insight_hours.hour = (wanted.value ->> 2)::bigint
{lock insight_hours};

-- name: save_hour
INSERT INTO insight_hours (principal, upstream, hour, counts) VALUES (:principal, :upstream, :hour, :counts)
ON CONFLICT (principal, upstream, hour) DO UPDATE SET counts = excluded.counts;

-- name: hours
SELECT hour, counts FROM insight_hours
WHERE principal = :principal AND upstream = '' AND hour >= :since AND hour < :until
ORDER BY hour;

-- name: hours_of_upstreams
SELECT insight_hours.upstream, insight_hours.counts
FROM unnest(:upstreams::text[]) AS wanted (name)
JOIN insight_hours ON insight_hours.principal = :principal AND insight_hours.upstream = wanted.name
    AND insight_hours.hour >= :since AND insight_hours.hour < :until;

-- name: remove
WITH old AS MATERIALIZED (
    SELECT principal, upstream, hour FROM insight_hours WHERE hour < :older_than
    ORDER BY hour LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM insight_hours USING old
WHERE insight_hours.principal = old.principal AND insight_hours.upstream = old.upstream AND insight_hours.hour = old.hour;
