-- A session is listed at its newest call. Visits the next `scan` calls at most; `end_of_…` returns where that scan ended, and no row
-- if the list ended before.

-- fragment: session_columns
found.id, found.principal, found.client_session_id, found.created_at AS last_call_at,
(
    SELECT first.created_at FROM calls AS first
    WHERE first.principal = found.principal AND first.client_session_id = found.client_session_id
    ORDER BY first.id LIMIT 1
) AS first_call_at,
(
    SELECT count(*) FROM (
        SELECT 1 FROM calls AS each INDEXED BY calls_of_session
        WHERE each.principal = found.principal AND each.client_session_id = found.client_session_id
        LIMIT :counted
    )
) AS calls

-- fragment: newest_calls
WHERE client_session_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM calls AS newer INDEXED BY calls_of_session
    WHERE newer.principal = scanned.principal AND newer.client_session_id = scanned.client_session_id
        AND newer.id > scanned.id
)

-- name: page
SELECT
    -- include: session_columns
FROM (
    SELECT id, principal, client_session_id, created_at FROM (
        SELECT id, principal, client_session_id, created_at FROM calls
        WHERE principal = :principal AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    -- include: newest_calls
    LIMIT :limit
) AS found
ORDER BY found.id DESC;

-- Of all principals, along the primary key.
-- name: page_of_all
SELECT
    -- include: session_columns
FROM (
    SELECT id, principal, client_session_id, created_at FROM (
        SELECT id, principal, client_session_id, created_at FROM calls
        WHERE id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    -- include: newest_calls
    LIMIT :limit
) AS found
ORDER BY found.id DESC;

-- name: end_of_page
SELECT id FROM calls
WHERE principal = :principal AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_all
SELECT id FROM calls WHERE id < coalesce(:before, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: ends_of_session
SELECT min(created_at) AS first_call_at, max(created_at) AS last_call_at FROM (
    SELECT * FROM (
        SELECT created_at FROM calls WHERE principal = :principal AND client_session_id = :client_session_id
        ORDER BY id LIMIT 1
    )
    UNION ALL
    SELECT * FROM (
        SELECT created_at FROM calls WHERE principal = :principal AND client_session_id = :client_session_id
        ORDER BY id DESC LIMIT 1
    )
) AS found;

-- The newest `limit` calls.
-- name: count_calls
SELECT status, outcome, count(*) AS count, sum(is_resumed) AS resumed,
    sum(NOT is_resumed AND is_answered) AS answered FROM (
    SELECT status, outcome, EXISTS (SELECT 1 FROM call_resumes WHERE call_resumes.call_id = calls.id) AS is_resumed,
        coalesce(finished_at <= attended_until, 0) AS is_answered FROM calls
    WHERE principal = :principal AND client_session_id = :client_session_id
    ORDER BY id DESC LIMIT :limit
) AS counted
GROUP BY status, outcome;
