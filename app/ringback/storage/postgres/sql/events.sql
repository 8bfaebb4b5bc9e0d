-- Locks the head until the commit. Begins the log, too: two transactions may append the first event at the same time. An event is
-- created when the lock is there, not when its transaction began. Up to a second between the two is not added: clocks of clients
-- differ by more. A head after `latest` has the time of a clock that was far ahead, which no later event takes over.
-- fragment: advance_head
ON CONFLICT (principal) DO UPDATE SET
    seq = log_heads.seq + excluded.seq,
    last_at = greatest(CASE WHEN log_heads.last_at <= :latest THEN log_heads.last_at END, excluded.last_at + CASE
        WHEN clock_timestamp() - transaction_timestamp() < interval '1 second' THEN 0
        ELSE (extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000)::bigint
    END)

-- name: reserve_seqs
INSERT INTO log_heads (principal, seq, last_at) VALUES (:principal, :count, :now)
-- include: advance_head
RETURNING seq, last_at;

-- name: begin_log
INSERT INTO log_heads (principal, seq, last_at) VALUES (:principal, :count, :now);

-- name: insert
INSERT INTO events {new event};

-- name: known_ids
SELECT id FROM events
WHERE principal = :principal AND id = ANY(:ids::text[]) AND coalesce(topic, '') = :topic AND occurred_at IS NOT NULL;

-- Places in a log have no gaps, so a scan that ends at `until` visits at most `until - seq` events.
-- name: after
SELECT {event in events} FROM events
WHERE principal = :principal AND seq > :seq AND seq <= :until
    AND (:name::text IS NULL OR name = :name)
    AND (:client_session_id::text IS NULL OR client_session_id = :client_session_id)
    AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id)
    AND (:upstream::text IS NULL OR upstream = :upstream)
    AND (:tool::text IS NULL OR tool = :tool)
    AND (:topic::text IS NULL OR coalesce(topic, '') = :topic)
ORDER BY seq LIMIT :limit;

-- Of all principals, newest first by time: for a look, because units of several principals commit in any order. Those of one
-- millisecond are in the order of the index, so that as many as there are need no sorting. Visits the next `scan` events at most; `end_of_latest` returns where that scan ended, and no row if the list ended before.
-- name: latest
SELECT {event in events}
FROM (
    SELECT principal, seq FROM (
        SELECT principal, seq, created_at, name, call_id, client_session_id, correlation_id, upstream, tool FROM events
        WHERE (created_at, principal, seq) < (:instant::bigint, :before_principal::text, :before_seq::bigint)
        ORDER BY created_at DESC, principal DESC, seq DESC LIMIT :scan
    ) AS scanned
    WHERE (:name::text IS NULL OR name = :name)
        AND (:call_id::text IS NULL OR call_id = :call_id)
        AND (:client_session_id::text IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id)
        AND (:upstream::text IS NULL OR upstream = :upstream)
        AND (:tool::text IS NULL OR tool = :tool)
    ORDER BY created_at DESC, principal DESC, seq DESC
    LIMIT :limit
) AS found
JOIN events ON events.principal = found.principal AND events.seq = found.seq
ORDER BY events.created_at DESC, events.principal DESC, events.seq DESC;

-- name: end_of_latest
SELECT created_at, principal, seq FROM events
WHERE (created_at, principal, seq) < (:instant::bigint, :before_principal::text, :before_seq::bigint)
ORDER BY created_at DESC, principal DESC, seq DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- The same, along the index of the call (the empty text keeps PostgreSQL from using the log's): resuming an old call does not read all
-- later events.
-- name: after_of_call
SELECT {event in events} FROM events
WHERE call_id = :call_id AND seq > :seq AND seq <= :until AND principal || '' = :principal
    AND (:name::text IS NULL OR name = :name)
    AND (:client_session_id::text IS NULL OR client_session_id = :client_session_id)
    AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id)
    AND (:upstream::text IS NULL OR upstream = :upstream)
    AND (:tool::text IS NULL OR tool = :tool)
    AND (:topic::text IS NULL OR coalesce(topic, '') = :topic)
ORDER BY seq LIMIT :limit;

-- The place of the last event that a scan along the call's index may visit; no row if the scan reaches the end of the log.
-- name: end_of_call_scan
SELECT seq FROM events WHERE call_id = :call_id AND seq > :seq ORDER BY seq LIMIT 1 OFFSET :scan::bigint - 1;

-- Up to `bytes_max` of data, but at least one event.
-- name: remove
WITH found AS MATERIALIZED (
    SELECT principal, seq, created_at, octet_length(data) AS bytes FROM events
    WHERE created_at < :older_than ORDER BY created_at, principal, seq LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
old AS MATERIALIZED (
    SELECT principal, seq FROM (
        SELECT principal, seq, bytes, sum(bytes) OVER (ORDER BY created_at, principal, seq) AS bytes_so_far FROM found
    ) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
DELETE FROM events USING old WHERE events.principal = old.principal AND events.seq = old.seq
RETURNING events.principal, events.seq;

-- name: raise_retention_floor
UPDATE log_heads SET retention_floor = greatest(retention_floor, :seq) WHERE principal = :principal;
