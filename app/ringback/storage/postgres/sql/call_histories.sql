-- Each reads the latest rows of an index of the call, and no more than its limit.

-- name: events
SELECT {event in found}
FROM (SELECT * FROM events WHERE call_id = :call_id ORDER BY seq DESC LIMIT :limit) AS found
ORDER BY found.seq;

-- name: deliveries
SELECT {delivery in found}
FROM unnest(:ids::text[]) AS wanted (call_id) CROSS JOIN LATERAL (
    SELECT * FROM deliveries
    WHERE deliveries.call_id = wanted.call_id ORDER BY deliveries.id DESC LIMIT :limit
) AS found
ORDER BY found.id;

-- Deliveries of one event, of which another principal may have one with the same id: visits `scan` of them at most.
-- name: deliveries_of_event
SELECT {delivery in found}
FROM (
    SELECT scanned.* FROM (
        SELECT * FROM deliveries WHERE event_id = :event_id ORDER BY webhook_id LIMIT :scan
    ) AS scanned
    WHERE :principal::text IS NULL OR scanned.principal = :principal
    LIMIT :limit
) AS found;

-- name: attempts
SELECT {attempt in found}
FROM unnest(:ids::text[]) AS wanted (delivery_id) CROSS JOIN LATERAL (
    SELECT * FROM attempts WHERE attempts.delivery_id = wanted.delivery_id ORDER BY id DESC LIMIT :limit
) AS found
ORDER BY found.delivery_id, found.number, found.id;
