-- Each reads the latest rows of an index of the call, and no more than its limit.

-- name: events
SELECT {event in events}
FROM (SELECT principal, seq FROM events WHERE call_id = :call_id ORDER BY seq DESC LIMIT :limit) AS found
CROSS JOIN events ON events.principal = found.principal AND events.seq = found.seq
ORDER BY events.seq;

-- name: deliveries
SELECT {delivery in found}
FROM (
    SELECT deliveries.*, NULL AS body
    FROM json_each(:ids) AS wanted CROSS JOIN deliveries ON deliveries.id IN (
        SELECT id FROM deliveries WHERE call_id = wanted.value ORDER BY id DESC LIMIT :limit
    )
) AS found
ORDER BY found.id;

-- name: attempts
SELECT {attempt in attempts}
FROM json_each(:ids) AS wanted CROSS JOIN attempts ON attempts.delivery_id = wanted.value AND attempts.id IN (
    SELECT id FROM attempts WHERE delivery_id = wanted.value ORDER BY id DESC LIMIT :limit
)
ORDER BY attempts.delivery_id, attempts.number, attempts.id;
