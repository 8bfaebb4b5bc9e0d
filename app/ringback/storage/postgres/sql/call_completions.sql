-- As update_ended of calls, for several calls; a row is [id, status, phase, outcome, …, expires_at, expected status, held token].
-- fragment: end_calls
UPDATE calls SET
    status = ended.row ->> 1, phase = ended.row ->> 2, outcome = ended.row ->> 3, progress = ended.row ->> 4,
    error = ended.row ->> 5, result_bytes = (ended.row ->> 6)::bigint, result_sha256 = ended.row ->> 7,
    handle = ended.row ->> 8, input_requests = ended.row ->> 9, input_responses = ended.row ->> 10,
    cancel_requested = cancel_requested OR (ended.row ->> 11)::boolean, lease_owner = NULL, lease_token = NULL,
    lease_until = NULL, updated_at = (ended.row ->> 12)::bigint, finished_at = (ended.row ->> 13)::bigint,
    expires_at = (ended.row ->> 14)::bigint
FROM json_array_elements(:ends::json) AS ended (row)
WHERE calls.id = ended.row ->> 0 AND calls.status = ended.row ->> 15
    AND (ended.row ->> 16 IS NULL OR lease_token = ended.row ->> 16)
RETURNING calls.id

-- name: end_many
-- include: end_calls
;

-- name: put_result
INSERT INTO results (call_id, body, key_id) VALUES (:call_id, :body, :key_id);

-- name: result
SELECT body, key_id FROM results WHERE call_id = :call_id;
