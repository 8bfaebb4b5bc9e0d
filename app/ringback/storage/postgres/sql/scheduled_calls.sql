-- Calls that start later. The runner queues those that are due, and sleeps until the next one.

-- name: queue_due
WITH due AS MATERIALIZED (
    SELECT id FROM calls WHERE phase = 'scheduled' AND not_before <= :now ORDER BY not_before LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE calls SET phase = 'queued' FROM due WHERE calls.id = due.id;

-- name: next
SELECT min(not_before) AS not_before FROM calls WHERE phase = 'scheduled';
