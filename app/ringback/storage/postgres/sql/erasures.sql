-- name: insert
INSERT INTO erasures {new erasure};

-- name: get
SELECT {erasure in erasures} FROM erasures WHERE id = :id
{lock erasures};

-- name: open_of_target
SELECT {erasure in erasures} FROM erasures
WHERE principal = :principal AND kind = :kind AND target = :target AND finished_at IS NULL
ORDER BY requested_at DESC, id DESC LIMIT 1;

-- name: next
SELECT {erasure in erasures} FROM erasures
WHERE finished_at IS NULL AND NOT is_waiting AND principal > :after
ORDER BY principal, worked_at LIMIT 1
{lock erasures skip locked};

-- name: next_waiting
SELECT {erasure in erasures} FROM erasures
WHERE finished_at IS NULL AND is_waiting AND principal > :after AND worked_at < :worked_before
ORDER BY principal, worked_at LIMIT 1
{lock erasures skip locked};

-- name: update
UPDATE erasures SET
    cancels = :cancels, requested_at = :requested_at, head = :head, worked_at = :worked_at, is_waiting = :is_waiting,
    finished_at = :finished_at, call_id = :call_id, seq = :seq, calls = :calls, deliveries = :deliveries, events = :events, webhooks = :webhooks
WHERE id = :id;

-- name: remove
WITH old AS MATERIALIZED (
    SELECT id FROM erasures WHERE finished_at < :older_than ORDER BY finished_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM erasures USING old WHERE erasures.id = old.id;
