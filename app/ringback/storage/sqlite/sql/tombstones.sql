-- Expired and erased calls: enough to keep the promise of their idempotency keys.

-- The only writer locks all ids.
-- name: lock_id
SELECT 1 WHERE :call_id IS NULL;

-- name: insert
INSERT INTO tombstones {new tombstone};

-- Up to `bytes_max` of arguments and results, but at least one call.
-- name: expired
SELECT {call in calls} FROM calls WHERE id IN (
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY expires_at, id) AS bytes_so_far FROM (
            SELECT id, expires_at, coalesce(argument_bytes, 0) + coalesce(result_bytes, 0) AS bytes FROM calls
            WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
);

-- name: delete_calls
DELETE FROM calls WHERE id IN (SELECT value FROM json_each(:ids));

-- The call's own webhook may still have deliveries. After them it is removed like every expired webhook.
-- name: expire_own_webhook
UPDATE webhooks SET expires_at = :expired_at WHERE principal = :principal AND call_id = :call_id AND origin = 'call';

-- name: get
SELECT {tombstone in tombstones} FROM tombstones WHERE principal = :principal AND (call_id = :call_id OR idempotency_key = :key);

-- Two ranges of the index, so that it skips the principal's own.
-- name: task_of_another
SELECT 1 AS found FROM tombstones WHERE task_hash = :task_hash AND principal < :principal
UNION ALL
SELECT 1 FROM tombstones WHERE task_hash = :task_hash AND principal > :principal
LIMIT 1;

-- name: mark_erased
UPDATE tombstones SET erased = 1, request_hash = '' WHERE call_id = :call_id;

-- Tombstones have no index by principal, so an erasure walks those of all, in the order of their expiry.
-- name: end_of_walk
SELECT expired_at FROM tombstones WHERE expired_at >= :first ORDER BY expired_at LIMIT 1 OFFSET :scan;

-- Starts that were given up have no hash, but a word in its place.
-- name: mark_expired_erased
UPDATE tombstones SET erased = 1, request_hash = ''
WHERE call_id IN (SELECT call_id FROM tombstones WHERE expired_at >= :first AND expired_at < :before)
    AND principal = :principal AND call_id < :before_id AND length(request_hash) = 64;

-- name: remove
DELETE FROM tombstones WHERE call_id IN (
    SELECT call_id FROM tombstones WHERE expired_at < :older_than ORDER BY expired_at LIMIT :limit
);
