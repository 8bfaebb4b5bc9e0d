-- name: add
INSERT INTO call_webhooks (call_id, webhook_id) VALUES (:call_id, :webhook_id) ON CONFLICT DO NOTHING;

-- name: any_call
SELECT EXISTS (SELECT 1 FROM call_webhooks WHERE webhook_id = :webhook_id) AS any_call;

-- name: naming_calls
SELECT call_id FROM call_webhooks WHERE call_id = ANY(:call_ids::text[]) AND webhook_id = :webhook_id;

-- The condition on the origin is the index's own, and so are the hash and U+001F for a filter that is not set.
-- name: same_target
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND hashtextextended(url, 0) = hashtextextended(:url::text COLLATE "C", 0)
    AND coalesce(client_session_id, E'\x1f') = coalesce(:client_session_id::text, E'\x1f')
    AND coalesce(call_id, E'\x1f') = coalesce(:call_id::text, E'\x1f')
    AND (origin <> 'call' OR call_id IS NULL) AND url = :url
ORDER BY id DESC LIMIT :limit;
