-- A head after `latest` has the time of a clock that was far ahead, which no later event takes over.
-- name: reserve_seqs
UPDATE log_heads SET seq = seq + :count, last_at = CASE WHEN last_at <= :latest THEN max(last_at, :now) ELSE :now END
WHERE principal = :principal RETURNING seq, last_at;

-- name: begin_log
INSERT INTO log_heads (principal, seq, last_at) VALUES (:principal, :count, :now);

-- name: insert
INSERT INTO events {new event};

-- name: known_ids
SELECT events.id FROM json_each(:ids) AS wanted
CROSS JOIN events ON events.principal = :principal AND events.id = wanted.value AND coalesce(events.topic, '') = :topic
    AND events.occurred_at IS NOT NULL;

-- Places in a log have no gaps, so a scan that ends at `until` visits at most `until - seq` events.
-- name: after
SELECT {event in events} FROM events
WHERE principal = :principal AND seq > :seq AND seq <= :until
    AND (:name IS NULL OR name = :name)
    AND (:client_session_id IS NULL OR client_session_id = :client_session_id)
    AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
    AND (:upstream IS NULL OR upstream = :upstream)
    AND (:tool IS NULL OR tool = :tool)
    AND (:topic IS NULL OR coalesce(topic, '') = :topic)
ORDER BY seq LIMIT :limit;

-- Of all principals, newest first by time: for a look, because units of several principals commit in any order. Those of one
-- millisecond are in the order of the index, so that as many as there are need no sorting. Visits the next `scan` events at most; `end_of_latest` returns where that scan ended, and no row if the list ended before.
-- name: latest
SELECT {event in events}
FROM (
    SELECT principal, seq FROM (
        SELECT principal, seq, created_at, name, call_id, client_session_id, correlation_id, upstream, tool FROM events INDEXED BY events_created
        WHERE (created_at, principal, seq) < (:instant, :before_principal, :before_seq)
        ORDER BY created_at DESC, principal DESC, seq DESC LIMIT :scan
    )
    WHERE (:name IS NULL OR name = :name)
        AND (:call_id IS NULL OR call_id = :call_id)
        AND (:client_session_id IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
        AND (:upstream IS NULL OR upstream = :upstream)
        AND (:tool IS NULL OR tool = :tool)
    LIMIT :limit
) AS found
CROSS JOIN events ON events.principal = found.principal AND events.seq = found.seq
ORDER BY events.created_at DESC, events.principal DESC, events.seq DESC;

-- name: end_of_latest
SELECT created_at, principal, seq FROM events INDEXED BY events_created
WHERE (created_at, principal, seq) < (:instant, :before_principal, :before_seq)
ORDER BY created_at DESC, principal DESC, seq DESC LIMIT 1 OFFSET :scan - 1;

-- The same, along the index of the call (the plus keeps SQLite from using the log's): resuming an old call does not read all
-- later events.
-- name: after_of_call
SELECT {event in events} FROM events
WHERE call_id = :call_id AND seq > :seq AND seq <= :until AND +principal = :principal
    AND (:name IS NULL OR name = :name)
    AND (:client_session_id IS NULL OR client_session_id = :client_session_id)
    AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
    AND (:upstream IS NULL OR upstream = :upstream)
    AND (:tool IS NULL OR tool = :tool)
    AND (:topic IS NULL OR coalesce(topic, '') = :topic)
ORDER BY seq LIMIT :limit;

-- The place of the last event that a scan along the call's index may visit; no row if the scan reaches the end of the log.
-- name: end_of_call_scan
SELECT seq FROM events WHERE call_id = :call_id AND seq > :seq ORDER BY seq LIMIT 1 OFFSET :scan - 1;

-- Up to `bytes_max` of data, but at least one event.
-- name: remove
DELETE FROM events WHERE (principal, seq) IN (
    SELECT principal, seq FROM (
        SELECT principal, seq, bytes, sum(bytes) OVER (ORDER BY created_at, principal, seq) AS bytes_so_far FROM (
            SELECT principal, seq, created_at, length(CAST(data AS BLOB)) AS bytes FROM events
            WHERE created_at < :older_than ORDER BY created_at, principal, seq LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
RETURNING principal, seq;

-- name: raise_retention_floor
UPDATE log_heads SET retention_floor = max(retention_floor, :seq) WHERE principal = :principal;
