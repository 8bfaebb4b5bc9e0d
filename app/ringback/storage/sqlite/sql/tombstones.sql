-- What is left of expired calls.

-- name: bury
INSERT INTO tombstones (call_id, principal, idempotency_key, request_hash, expired_at)
VALUES (:call_id, :principal, :idempotency_key, :request_hash, :expired_at);

-- name: delete_call
DELETE FROM calls WHERE id = :call_id;

-- name: get
SELECT * FROM tombstones WHERE principal = :principal AND (call_id = :call_id OR idempotency_key = :key);

-- name: remove
DELETE FROM tombstones WHERE call_id IN (
    SELECT call_id FROM tombstones WHERE expired_at < :older_than ORDER BY expired_at LIMIT :limit
);
