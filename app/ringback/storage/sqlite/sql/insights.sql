-- The only writer counts alone.
-- name: lock
SELECT 1;

-- name: positions
SELECT positions FROM insight_positions WHERE id = 1;

-- name: save_positions
INSERT INTO insight_positions (id, positions) VALUES (1, :positions)
ON CONFLICT (id) DO UPDATE SET positions = excluded.positions;

-- What is counted, each along its index, `limit` rows at most. '~' sorts after every id.
-- name: starts
SELECT id, principal, upstream, created_at FROM calls
WHERE id > :after AND id < coalesce(:until_id, '~')
ORDER BY id LIMIT :limit;

-- Events of other names are returned, too: the next step begins after them. A call that has expired has no outcome any more.
-- name: ends
SELECT
    scanned.principal, scanned.seq, scanned.created_at AS instant,
    calls.upstream, calls.outcome, calls.dispatched_at
FROM (
    SELECT principal, seq, created_at, name, call_id FROM events INDEXED BY events_created
    WHERE created_at >= :instant AND (created_at > :instant OR (principal, seq) > (:after_principal, :after_seq))
        AND created_at < coalesce(:until, 9223372036854775807)
    ORDER BY created_at, principal, seq LIMIT :limit
) AS scanned
LEFT JOIN calls ON calls.id = scanned.call_id AND scanned.name = 'call.finished'
ORDER BY scanned.created_at, scanned.principal, scanned.seq;

-- name: deliveries
SELECT id, principal, state, created_at, finished_at FROM deliveries INDEXED BY deliveries_finished
WHERE finished_at IS NOT NULL AND finished_at >= :instant AND (finished_at > :instant OR id > :after)
    AND finished_at < coalesce(:until, 9223372036854775807)
ORDER BY finished_at, id LIMIT :limit;

-- name: attempts
SELECT scanned.id, scanned.category, deliveries.principal
FROM (
    SELECT id, delivery_id, category FROM attempts INDEXED BY attempts_in_order
    WHERE id > :after AND id < coalesce(:until_id, '~')
    ORDER BY id LIMIT :limit
) AS scanned
LEFT JOIN deliveries ON deliveries.id = scanned.delivery_id
ORDER BY scanned.id;

-- name: erased
SELECT erasures.principal FROM json_each(:principals) AS wanted
CROSS JOIN erasures ON erasures.principal = wanted.value
    AND erasures.kind = 'principal' AND erasures.finished_at IS NULL
UNION
SELECT principal FROM erasures WHERE finished_at >= :since AND kind = 'principal';

-- A row is [principal, upstream, hour].
-- name: hours_of_keys
SELECT insight_hours.principal, insight_hours.upstream, insight_hours.hour, insight_hours.counts
FROM json_each(:keys) AS wanted
CROSS JOIN insight_hours ON insight_hours.principal = wanted.value ->> 0 AND insight_hours.upstream = wanted.value ->> 1
    AND insight_hours.hour = wanted.value ->> 2;

-- name: save_hour
INSERT INTO insight_hours (principal, upstream, hour, counts) VALUES (:principal, :upstream, :hour, :counts)
ON CONFLICT (principal, upstream, hour) DO UPDATE SET counts = excluded.counts;

-- name: hours
SELECT hour, counts FROM insight_hours
WHERE principal = :principal AND upstream = '' AND hour >= :since AND hour < :until
ORDER BY hour;

-- name: hours_of_upstreams
SELECT insight_hours.upstream, insight_hours.counts
FROM json_each(:upstreams) AS wanted
CROSS JOIN insight_hours ON insight_hours.principal = :principal AND insight_hours.upstream = wanted.value
    AND insight_hours.hour >= :since AND insight_hours.hour < :until;

-- name: remove
DELETE FROM insight_hours WHERE (principal, upstream, hour) IN (
    SELECT principal, upstream, hour FROM insight_hours WHERE hour < :older_than ORDER BY hour LIMIT :limit
);
