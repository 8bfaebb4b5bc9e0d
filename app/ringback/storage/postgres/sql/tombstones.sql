-- Expired and erased calls: enough to keep the promise of their idempotency keys.

-- The seed is any that no other lock has.
-- name: lock_id
SELECT pg_advisory_xact_lock(hashtextextended(:call_id, 11));

-- name: insert
INSERT INTO tombstones {new tombstone};

-- Up to `bytes_max` of arguments and results, but at least one call. Rows are locked before their bytes are summed: those that
-- another unit has locked hide none.
-- name: expired
WITH found AS MATERIALIZED (
    SELECT id, expires_at, coalesce(argument_bytes, 0) + coalesce(result_bytes, 0) AS bytes FROM calls
    WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
    {lock calls skip locked}
)
SELECT {call in calls} FROM calls WHERE id IN (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY expires_at, id) AS bytes_so_far FROM found) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
);

-- name: delete_calls
WITH removed_inputs AS (DELETE FROM inputs WHERE call_id = ANY(:ids::text[])),
removed_results AS (DELETE FROM results WHERE call_id = ANY(:ids::text[])),
removed_names AS (DELETE FROM call_webhooks WHERE call_id = ANY(:ids::text[])),
removed_waits AS (DELETE FROM login_waits WHERE call_id = ANY(:ids::text[]))
DELETE FROM calls WHERE id = ANY(:ids::text[]);

-- The call's own webhook may still have deliveries. After them it is removed like every expired webhook.
-- name: expire_own_webhook
UPDATE webhooks SET expires_at = :expired_at WHERE principal || '' = :principal AND call_id = :call_id AND origin = 'call';

-- name: get
SELECT {tombstone in tombstones} FROM tombstones WHERE principal = :principal AND call_id = :call_id
UNION ALL
SELECT {tombstone in tombstones} FROM tombstones WHERE principal = :principal AND idempotency_key = :key;

-- Two ranges of the index, so that it skips the principal's own.
-- name: task_of_another
SELECT 1 AS found FROM tombstones WHERE task_hash = :task_hash AND principal < :principal
UNION ALL
SELECT 1 FROM tombstones WHERE task_hash = :task_hash AND principal > :principal
LIMIT 1;

-- name: mark_erased
UPDATE tombstones SET erased = true, request_hash = '' WHERE call_id = :call_id;

-- Tombstones have no index by principal, so an erasure walks those of all, in the order of their expiry.
-- name: end_of_walk
SELECT expired_at FROM tombstones WHERE expired_at >= :first ORDER BY expired_at LIMIT 1 OFFSET :scan::bigint;

-- Starts that were given up have no hash, but a word in its place.
-- name: mark_expired_erased
UPDATE tombstones SET erased = true, request_hash = ''
WHERE call_id IN (SELECT call_id FROM tombstones WHERE expired_at >= :first AND expired_at < :before)
    AND principal = :principal AND call_id < :before_id AND length(request_hash) = 64;

-- name: remove
WITH old AS MATERIALIZED (
    SELECT call_id FROM tombstones WHERE expired_at < :older_than ORDER BY expired_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM tombstones USING old WHERE tombstones.call_id = old.call_id;
