-- Each reads the latest rows of an index of the call, and no more than its limit.

-- name: events
SELECT {event in events}
FROM (SELECT principal, seq FROM events WHERE call_id = :call_id ORDER BY seq DESC LIMIT :limit) AS found
CROSS JOIN events ON events.principal = found.principal AND events.seq = found.seq
ORDER BY events.seq;

-- name: deliveries
SELECT {delivery in found}
FROM (
    SELECT deliveries.*
    FROM json_each(:ids) AS wanted CROSS JOIN deliveries ON deliveries.id IN (
        SELECT id FROM deliveries WHERE call_id = wanted.value ORDER BY id DESC LIMIT :limit
    )
) AS found
ORDER BY found.id;

-- Deliveries of one event, of which another principal may have one with the same id: visits `scan` of them at most.
-- name: deliveries_of_event
SELECT {delivery in found}
FROM (
    SELECT deliveries.* FROM (
        SELECT id FROM deliveries WHERE event_id = :event_id ORDER BY webhook_id LIMIT :scan
    ) AS scanned
    CROSS JOIN deliveries ON deliveries.id = scanned.id
    WHERE :principal IS NULL OR deliveries.principal = :principal
    LIMIT :limit
) AS found;

-- name: attempts
SELECT {attempt in attempts}
FROM json_each(:ids) AS wanted CROSS JOIN attempts ON attempts.delivery_id = wanted.value AND attempts.id IN (
    SELECT id FROM attempts WHERE delivery_id = wanted.value ORDER BY id DESC LIMIT :limit
)
ORDER BY attempts.delivery_id, attempts.number, attempts.id;
