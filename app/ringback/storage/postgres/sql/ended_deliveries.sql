-- Ended deliveries that have no newer generation, oldest first. The statements differ only in their index. Each visits the next
-- `scan` deliveries of its index at most, however few of them match; `end_of_…` returns where that scan ended. An event's session
-- and correlation are read from the log, by its key.

-- fragment: matching
WHERE principal = :principal AND state = :state AND kind = 'event' AND seq IS NOT NULL AND created_at < :until
    AND (:category::text IS NULL OR last_category = :category)
    AND (:call_id::text IS NULL OR call_id = :call_id)
    AND (:client_session_id::text IS NULL OR :client_session_id = (
        SELECT client_session_id FROM events WHERE events.principal = ended.principal AND events.seq = ended.seq
    ))
    AND (:correlation_id::text IS NULL OR :correlation_id = (
        SELECT correlation_id FROM events WHERE events.principal = ended.principal AND events.seq = ended.seq
    ))
    AND NOT EXISTS (
        SELECT 1 FROM deliveries
        WHERE (event_id, webhook_id, generation) > (ended.event_id, ended.webhook_id, ended.generation)
            AND (event_id, webhook_id) <= (ended.event_id, ended.webhook_id)
    )
ORDER BY id LIMIT :limit

-- name: dead_of_webhook
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, event_id, webhook_id, call_id, generation, kind, seq, state, last_category, created_at
        FROM deliveries
        WHERE webhook_id = :webhook_id AND state = 'dead' AND id > :after AND id < :before
        ORDER BY id LIMIT :scan
    ) AS ended
    -- include: matching
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id;

-- name: end_of_dead_of_webhook
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND state = 'dead' AND id > :after AND id < :before
ORDER BY id LIMIT 1 OFFSET :scan::bigint - 1;

-- name: dead
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, event_id, webhook_id, call_id, generation, kind, seq, state, last_category, created_at
        FROM deliveries
        WHERE principal = :principal AND state = 'dead' AND id > :after AND id < :before
        ORDER BY id LIMIT :scan
    ) AS ended
    -- include: matching
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id;

-- name: end_of_dead
SELECT id FROM deliveries
WHERE principal = :principal AND state = 'dead' AND id > :after AND id < :before
ORDER BY id LIMIT 1 OFFSET :scan::bigint - 1;

-- name: all_of_webhook
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, event_id, webhook_id, call_id, generation, kind, seq, state, last_category, created_at
        FROM deliveries
        WHERE webhook_id = :webhook_id AND id > :after AND id < :before
        ORDER BY id LIMIT :scan
    ) AS ended
    -- include: matching
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id;

-- name: end_of_all_of_webhook
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND id > :after AND id < :before
ORDER BY id LIMIT 1 OFFSET :scan::bigint - 1;

-- name: all
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, event_id, webhook_id, call_id, generation, kind, seq, state, last_category, created_at
        FROM deliveries
        WHERE principal = :principal AND id > :after AND id < :before
        ORDER BY id LIMIT :scan
    ) AS ended
    -- include: matching
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id;

-- name: end_of_all
SELECT id FROM deliveries
WHERE principal = :principal AND id > :after AND id < :before
ORDER BY id LIMIT 1 OFFSET :scan::bigint - 1;
