-- name: head
SELECT seq, horizon FROM log_heads WHERE principal = :principal;

-- name: id_at
SELECT id FROM events WHERE principal = :principal AND seq = :seq;

-- Halves the log until the place is found: what stands at `low` or before it was made before the instant, what stands behind
-- `high` was not. A place without an event is one that retention has emptied, so it is old.
-- name: last_before
WITH RECURSIVE halves (low, high) AS (
    SELECT horizon, seq FROM log_heads WHERE principal = :principal
    UNION ALL
    SELECT
        iif(coalesce(middle.created_at < :instant, true), (low + high + 1) / 2, low),
        iif(coalesce(middle.created_at < :instant, true), high, (low + high + 1) / 2 - 1)
    FROM halves
    LEFT JOIN events AS middle ON middle.principal = :principal AND middle.seq = (low + high + 1) / 2
    WHERE low < high
)
SELECT low AS seq FROM halves WHERE low >= high;
