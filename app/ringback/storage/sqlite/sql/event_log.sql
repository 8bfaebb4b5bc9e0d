-- name: head
SELECT seq, retention_floor FROM log_heads WHERE principal = :principal;

-- The only writer holds every log already.
-- name: locked_head
SELECT seq FROM log_heads WHERE principal = :principal;

-- name: id_at
SELECT id FROM events WHERE principal = :principal AND seq = :seq;

-- name: ids_at
SELECT events.seq, events.id
FROM json_each(:seqs) AS wanted CROSS JOIN events ON events.principal = :principal AND events.seq = wanted.value;

-- Binary search in the log: events up to `low` were created before the instant, events after `high` were not. At a place without
-- an event retention has removed it, so it is old.
-- name: last_before
WITH RECURSIVE halves (low, high) AS (
    SELECT retention_floor, seq FROM log_heads WHERE principal = :principal
    UNION ALL
    SELECT
        iif(coalesce(middle.created_at < :instant, true), (low + high + 1) / 2, low),
        iif(coalesce(middle.created_at < :instant, true), high, (low + high + 1) / 2 - 1)
    FROM halves
    LEFT JOIN events AS middle ON middle.principal = :principal AND middle.seq = (low + high + 1) / 2
    WHERE low < high
)
SELECT low AS seq FROM halves WHERE low >= high;

-- Visits at most `until - seq` events, or those with this external id.
-- name: find
SELECT {event in events} FROM events
WHERE principal = :principal AND seq > :seq AND seq <= :until AND id = :event_id
LIMIT 1;

-- name: find_external
SELECT {event in events} FROM events
WHERE principal = :principal AND id = :event_id AND occurred_at IS NOT NULL
ORDER BY coalesce(topic, '') LIMIT 1;

-- Backwards in one log. Each visits the next `scan` events of its index at most; `end_of_…` returns where that scan ended, and no row
-- if the log ended before.
-- fragment: of_name_session_and_tool
AND (:name IS NULL OR name = :name)
AND (:client_session_id IS NULL OR client_session_id = :client_session_id)
AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
AND (:upstream IS NULL OR upstream = :upstream)
AND (:tool IS NULL OR tool = :tool)

-- name: before
SELECT {event in events}
FROM (
    SELECT principal, seq FROM (
        SELECT principal, seq, name, client_session_id, correlation_id, upstream, tool FROM events
        WHERE principal = :principal AND seq < :seq
        ORDER BY seq DESC LIMIT :scan
    )
    WHERE principal = :principal
        -- include: of_name_session_and_tool
    LIMIT :limit
) AS found
CROSS JOIN events ON events.principal = found.principal AND events.seq = found.seq
ORDER BY events.seq DESC;

-- name: end_of_before
SELECT seq FROM events
WHERE principal = :principal AND seq < :seq
ORDER BY seq DESC LIMIT 1 OFFSET :scan - 1;

-- name: before_of_call
SELECT {event in events}
FROM (
    SELECT principal, seq FROM (
        SELECT principal, seq, name, client_session_id, correlation_id, upstream, tool FROM events
        WHERE call_id = :call_id AND seq < :seq
        ORDER BY seq DESC LIMIT :scan
    )
    WHERE principal = :principal
        -- include: of_name_session_and_tool
    LIMIT :limit
) AS found
CROSS JOIN events ON events.principal = found.principal AND events.seq = found.seq
ORDER BY events.seq DESC;

-- name: end_of_before_of_call
SELECT seq FROM events
WHERE call_id = :call_id AND seq < :seq
ORDER BY seq DESC LIMIT 1 OFFSET :scan - 1;

-- The principal of a call's events: they are all in one log.
-- name: owner_of_call
SELECT principal FROM events WHERE call_id = :call_id ORDER BY seq LIMIT 1;
