-- As update_ended of calls, for several calls; a row is [id, status, phase, outcome, …, expires_at, expected status, held token].
-- name: end_many
UPDATE calls SET
    status = ended.value ->> 1, phase = ended.value ->> 2, outcome = ended.value ->> 3, progress = ended.value ->> 4,
    error = ended.value ->> 5, result_bytes = ended.value ->> 6, result_sha256 = ended.value ->> 7, handle = ended.value ->> 8,
    input_requests = ended.value ->> 9, input_responses = ended.value ->> 10,
    cancel_requested = max(cancel_requested, ended.value ->> 11), lease_owner = NULL, lease_token = NULL, lease_until = NULL,
    updated_at = ended.value ->> 12, finished_at = ended.value ->> 13, expires_at = ended.value ->> 14
FROM json_each(:ends) AS ended
WHERE calls.id = ended.value ->> 0 AND calls.status = ended.value ->> 15
    AND (ended.value ->> 16 IS NULL OR lease_token = ended.value ->> 16)
RETURNING calls.id;

-- name: put_result
INSERT INTO results (call_id, body, key_id) VALUES (:call_id, :body, :key_id);

-- name: result
SELECT body, key_id FROM results WHERE call_id = :call_id;
