-- name: add
INSERT INTO call_webhooks (call_id, webhook_id) VALUES (:call_id, :webhook_id) ON CONFLICT DO NOTHING;

-- name: any_call
SELECT EXISTS (SELECT 1 FROM call_webhooks WHERE webhook_id = :webhook_id) AS any_call;

-- name: naming_calls
SELECT call_id FROM json_each(:call_ids) AS wanted
CROSS JOIN call_webhooks ON call_id = wanted.value AND webhook_id = :webhook_id;

-- The condition on the origin is the index's own.
-- name: same_target
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND url = :url AND client_session_id IS :client_session_id AND call_id IS :call_id
    AND (origin <> 'call' OR call_id IS NULL)
ORDER BY id DESC LIMIT :limit;
