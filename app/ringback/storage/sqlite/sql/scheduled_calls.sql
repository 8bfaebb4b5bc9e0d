-- Calls that start later. The runner queues those that are due, and sleeps until the next one.

-- name: queue_due
UPDATE calls SET phase = 'queued'
WHERE id IN (SELECT id FROM calls WHERE phase = 'scheduled' AND not_before <= :now ORDER BY not_before LIMIT :limit);

-- name: next
SELECT min(not_before) AS not_before FROM calls WHERE phase = 'scheduled';
