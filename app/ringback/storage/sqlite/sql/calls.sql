-- name: insert
INSERT INTO calls {new call with argument_bytes};

-- name: insert_input
INSERT INTO inputs (call_id, arguments, meta, key_id) VALUES (:id, :arguments, :meta, :key_id);

-- name: get
SELECT {call in calls} FROM calls WHERE id = :id;

-- name: get_whole
SELECT {whole_call in whole_calls} FROM whole_calls WHERE id = :id;

-- name: by_ids
SELECT {call in calls}
FROM json_each(:ids) AS wanted CROSS JOIN calls ON calls.id = wanted.value;

-- name: by_idempotency_key
SELECT {call in calls} FROM calls WHERE principal = :principal AND idempotency_key = :key;

-- The pages differ only in their index. Each visits the next `scan` calls of its index at most, however few of them match: SQLite
-- ends the innermost SELECT at its own LIMIT, and stops it once enough calls have matched. '~' sorts after every id. A statement
-- `end_of_…` returns where such a scan ended, from the index alone, and no row if the list ended before.

-- Of rows of calls, with the name `scanned`.
-- fragment: of_upstream_tool_start_outcomes_and_attempts
AND (:upstream IS NULL OR upstream = :upstream)
AND (:tool IS NULL OR tool = :tool)
AND (:started IS NULL OR (dispatched_at IS NOT NULL) = :started)
AND (:outcomes IS NULL OR outcome IN (SELECT value FROM json_each(:outcomes)))
AND runs >= :min_runs
AND (
    :min_delivery_attempts = 0
    OR (SELECT max(attempts) FROM deliveries WHERE call_id = scanned.id AND attempts > 1) >= :min_delivery_attempts
)

-- name: page
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE principal = :principal AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- Of all principals, along the primary key.
-- name: page_of_all
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, client_session_id, correlation_id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:client_session_id IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
        AND (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_session
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, correlation_id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE principal = :principal AND client_session_id = :client_session_id AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:correlation_id IS NULL OR correlation_id = :correlation_id)
        AND (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_correlation
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE principal = :principal AND correlation_id = :correlation_id AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_status
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE principal = :principal AND status = :status AND status <> 'completed' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE TRUE
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- Calls that ended without a result.
-- name: page_of_unsuccessful
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE principal = :principal AND outcome <> 'result' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_all_unsuccessful
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, client_session_id, correlation_id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE outcome <> 'result' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:client_session_id IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
        AND (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_all_awaiting_input
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, client_session_id, correlation_id, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE status = 'input_required' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:client_session_id IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- Calls that ran more than once.
-- name: page_of_rerun
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE principal = :principal AND is_rerun AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_all_rerun
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT id, client_session_id, correlation_id, status, outcome, upstream, tool, runs, dispatched_at FROM calls
        WHERE is_rerun AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:client_session_id IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
        AND (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- Calls of which a delivery was tried again. Each step of the recursion finds the next older one in the index, so a call with
-- thousands of deliveries is one step, too. A step costs as much as five rows of the other scans.
-- name: page_of_retried
WITH RECURSIVE retried (call_id, number) AS (
    SELECT max(call_id), 1 FROM deliveries
    WHERE principal = :principal AND attempts > 1 AND call_id >= :first_id AND call_id < coalesce(:before, '~')
    UNION ALL
    SELECT (
        SELECT max(call_id) FROM deliveries
        WHERE principal = :principal AND attempts > 1 AND call_id >= :first_id AND call_id < retried.call_id
    ), number + 1
    FROM retried WHERE retried.call_id IS NOT NULL AND number < :scan / 5
)
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT calls.id, status, outcome, upstream, tool, runs, dispatched_at
        FROM retried CROSS JOIN calls ON calls.id = retried.call_id
    ) AS scanned
    WHERE (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: page_of_all_retried
WITH RECURSIVE retried (call_id, number) AS (
    SELECT max(call_id), 1 FROM deliveries
    WHERE attempts > 1 AND call_id >= :first_id AND call_id < coalesce(:before, '~')
    UNION ALL
    SELECT (
        SELECT max(call_id) FROM deliveries
        WHERE attempts > 1 AND call_id >= :first_id AND call_id < retried.call_id
    ), number + 1
    FROM retried WHERE retried.call_id IS NOT NULL AND number < :scan / 5
)
SELECT {call in calls}
FROM (
    SELECT id FROM (
        SELECT calls.id, client_session_id, correlation_id, status, outcome, upstream, tool, runs, dispatched_at
        FROM retried CROSS JOIN calls ON calls.id = retried.call_id
    ) AS scanned
    WHERE (:client_session_id IS NULL OR client_session_id = :client_session_id)
        AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
        AND (:status IS NULL OR status = :status)
        -- include: of_upstream_tool_start_outcomes_and_attempts
    LIMIT :limit
) AS found
CROSS JOIN calls ON calls.id = found.id
ORDER BY calls.id DESC;

-- name: end_of_page
SELECT id FROM calls
WHERE principal = :principal AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_all
SELECT id FROM calls WHERE id >= :first_id AND id < coalesce(:before, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_session
SELECT id FROM calls
WHERE principal = :principal AND client_session_id = :client_session_id AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_correlation
SELECT id FROM calls
WHERE principal = :principal AND correlation_id = :correlation_id AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_status
SELECT id FROM calls
WHERE principal = :principal AND status = :status AND status <> 'completed' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_unsuccessful
SELECT id FROM calls
WHERE principal = :principal AND outcome <> 'result' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_all_unsuccessful
SELECT id FROM calls WHERE outcome <> 'result' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_all_awaiting_input
SELECT id FROM calls WHERE status = 'input_required' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_rerun
SELECT id FROM calls WHERE principal = :principal AND is_rerun AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_all_rerun
SELECT id FROM calls WHERE is_rerun AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_retried
WITH RECURSIVE retried (call_id, number) AS (
    SELECT max(call_id), 1 FROM deliveries
    WHERE principal = :principal AND attempts > 1 AND call_id >= :first_id AND call_id < coalesce(:before, '~')
    UNION ALL
    SELECT (
        SELECT max(call_id) FROM deliveries
        WHERE principal = :principal AND attempts > 1 AND call_id >= :first_id AND call_id < retried.call_id
    ), number + 1
    FROM retried WHERE retried.call_id IS NOT NULL AND number < :scan / 5
)
SELECT call_id AS id FROM retried WHERE number = :scan / 5 AND call_id IS NOT NULL;

-- name: end_of_page_of_all_retried
WITH RECURSIVE retried (call_id, number) AS (
    SELECT max(call_id), 1 FROM deliveries
    WHERE attempts > 1 AND call_id >= :first_id AND call_id < coalesce(:before, '~')
    UNION ALL
    SELECT (
        SELECT max(call_id) FROM deliveries
        WHERE attempts > 1 AND call_id >= :first_id AND call_id < retried.call_id
    ), number + 1
    FROM retried WHERE retried.call_id IS NOT NULL AND number < :scan / 5
)
SELECT call_id AS id FROM retried WHERE number = :scan / 5 AND call_id IS NOT NULL;

-- One statement for each kind of change. It writes the columns that the change decides, and no other. It changes nothing if the
-- call has another status or, with a token, another lease.

-- name: update_dispatched
UPDATE calls SET dispatched_at = :dispatched_at, runs = :runs, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_handle
UPDATE calls SET handle = :handle, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_progress
UPDATE calls SET progress = :progress, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_inputs
UPDATE calls SET
    status = :status, phase = :phase, input_requests = :input_requests, input_responses = :input_responses,
    input_round = :input_round, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_parked
UPDATE calls SET
    status = :status, phase = :phase, progress = :progress, handle = :handle, input_requests = :input_requests,
    input_responses = :input_responses, input_round = :input_round, lease_owner = :lease_owner, lease_token = :lease_token,
    lease_until = :lease_until, dispatched_at = :dispatched_at, runs = :runs, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_queued
UPDATE calls SET
    status = :status, phase = :phase, handle = :handle, input_requests = :input_requests, input_responses = :input_responses,
    lease_owner = :lease_owner, lease_token = :lease_token, lease_until = :lease_until, dispatched_at = :dispatched_at,
    runs = :runs, not_before = :not_before, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_cancelling
UPDATE calls SET cancel_requested = :cancel_requested, updated_at = :updated_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: update_unattended
UPDATE calls SET attended_until = :attended_until
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- A requested cancellation stays requested, also if it did not end the call.
-- name: update_ended
UPDATE calls SET
    status = :status, phase = :phase, outcome = :outcome, progress = :progress, error = :error, result_bytes = :result_bytes,
    result_sha256 = :result_sha256, handle = :handle, input_requests = :input_requests, input_responses = :input_responses,
    cancel_requested = max(cancel_requested, :cancel_requested), lease_owner = NULL, lease_token = NULL, lease_until = NULL,
    updated_at = :updated_at, finished_at = :finished_at, expires_at = :expires_at
WHERE id = :id AND status = :expected AND (:held_token IS NULL OR lease_token = :held_token);

-- name: revoke_tokens
UPDATE calls SET token_version = token_version + 1, updated_at = :now WHERE id = :id RETURNING token_version;
