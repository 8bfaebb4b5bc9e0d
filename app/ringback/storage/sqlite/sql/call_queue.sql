-- One look into the index for each upstream.
-- name: queued_upstreams
SELECT wanted.value AS upstream FROM json_each(:upstreams) AS wanted
WHERE EXISTS (SELECT 1 FROM calls WHERE phase = 'queued' AND upstream = wanted.value);

-- Steps from principal to principal along the index instead of reading the whole queue: ten thousand calls of one principal
-- cost no more than one. Each principal gets one call a turn; the principal that was served longest ago comes first. A paused
-- upstream gets none, and so do the principals in `without`. Each of the others gets `limit_each` at most, less the calls that it has
-- in `running`: those numbers are rows beside the candidates, because a join would read all of them for each principal.
-- One call of each is enough if so many principals may have one more.
-- name: queued
WITH RECURSIVE waiting (principal) AS (
    SELECT min(principal) FROM calls WHERE phase = 'queued' AND upstream = :upstream AND NOT EXISTS (
        SELECT 1 FROM upstream_controls WHERE upstream_controls.upstream = :upstream AND intake = 'paused'
    )
    UNION ALL
    SELECT (
        SELECT min(principal) FROM calls WHERE phase = 'queued' AND upstream = :upstream AND principal > waiting.principal
    )
    FROM waiting WHERE waiting.principal IS NOT NULL
),
wanted_each (calls) AS (
    SELECT iif(
        count(principal)
        - (SELECT count(*) FROM json_each(:without))
        - (SELECT count(*) FROM json_each(:running) WHERE value >= :limit_each) >= :limit,
        1,
        :limit
    )
    FROM waiting
),
candidates (id, principal, ticket, running) AS (
    SELECT NULL, key, NULL, value FROM json_each(:running)
    UNION ALL
    SELECT calls.id, calls.principal, coalesce(turns.ticket, 0), 0
    FROM waiting
    CROSS JOIN calls ON calls.id IN (
        SELECT id FROM calls
        WHERE phase = 'queued' AND upstream = :upstream AND principal = waiting.principal
        ORDER BY id LIMIT (SELECT calls FROM wanted_each)
    )
    LEFT JOIN turns ON turns.upstream = :upstream AND turns.principal = calls.principal
    WHERE waiting.principal NOT IN (SELECT value FROM json_each(:without))
),
numbered AS (
    SELECT
        id,
        principal,
        ticket,
        count(id) OVER (PARTITION BY principal ORDER BY id) AS place,
        sum(running) OVER (PARTITION BY principal) AS running
    FROM candidates
)
SELECT id, principal FROM numbered
WHERE id IS NOT NULL AND running + place <= :limit_each
ORDER BY place, ticket, id
LIMIT :limit;

-- name: lease
UPDATE calls SET phase = 'running', lease_owner = :owner, lease_token = :token, lease_until = :until
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: take_turns
INSERT INTO turns (upstream, principal, ticket)
SELECT :upstream, value, (SELECT coalesce(max(ticket), 0) + 1 FROM turns WHERE upstream = :upstream) + key
FROM json_each(:principals) WHERE true
ON CONFLICT (upstream, principal) DO UPDATE SET ticket = excluded.ticket;

-- A row if a call may pass the queue. Two pages of each start of a call are not written if its principal had the last turn already.
-- name: free_turn
SELECT coalesce(
    (SELECT principal FROM turns WHERE upstream = :upstream ORDER BY ticket DESC LIMIT 1) = :principal, FALSE
) AS is_taken
WHERE NOT EXISTS (SELECT 1 FROM calls WHERE phase = 'queued' AND upstream = :upstream)
    AND NOT EXISTS (
        SELECT 1 FROM upstream_controls WHERE upstream_controls.upstream = :upstream AND intake = 'paused'
    );

-- Arguments of more than `argument_bytes_max` are left out.
-- name: leased_by_ids
WITH leased AS (
    SELECT
        calls.*,
        wanted.key AS place,
        CASE WHEN argument_bytes <= :argument_bytes_max THEN inputs.arguments END AS arguments,
        inputs.meta
    FROM json_each(:ids) AS wanted
    CROSS JOIN calls ON calls.id = wanted.value
    CROSS JOIN inputs ON inputs.call_id = calls.id
)
SELECT {whole_call in leased} FROM leased ORDER BY place;

-- name: extend
UPDATE calls SET lease_until = :until
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease_owner = :owner
RETURNING id, cancel_requested;

-- name: extend_unlocked
UPDATE calls SET lease_until = :until
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease_owner = :owner
RETURNING id, cancel_requested;

-- name: lease_expired
SELECT {call in calls} FROM calls
WHERE id IN (
    SELECT id FROM (SELECT id FROM calls WHERE phase = 'running' AND lease_until IS NULL LIMIT :limit)
    UNION ALL
    SELECT id FROM (SELECT id FROM calls WHERE phase = 'running' AND lease_until <= :now LIMIT :limit)
)
ORDER BY id LIMIT :limit;

-- name: lease_expired_of
SELECT {call in calls} FROM calls
WHERE id IN (
    SELECT id FROM calls INDEXED BY calls_running
    WHERE phase = 'running' AND lease_until <= :now AND lease_owner = :owner LIMIT :limit
)
ORDER BY id;

-- Queued calls that were sent have a grace: their runner cancels them at the upstream. They must not be in the way of the others.
-- name: past_deadline
SELECT {call in calls} FROM calls
WHERE id IN (
    SELECT id FROM calls
    WHERE phase IN ('queued', 'parked') AND deadline_at <= :now AND (
        deadline_at <= :grace_end OR phase = 'parked' OR dispatched_at IS NULL OR handle LIKE :stateless_handle
    )
    ORDER BY deadline_at LIMIT :limit
);

-- name: leased
SELECT {call in calls} FROM calls
WHERE id IN (
    SELECT id FROM calls INDEXED BY calls_running WHERE phase = 'running' AND (lease_owner IS :owner) = :own LIMIT :limit
);

-- The only writer holds every task already.
-- name: lock_task
SELECT 1 WHERE :upstream IS NULL AND :task_id IS NULL;

-- name: by_task
SELECT {call in calls} FROM calls
WHERE upstream = :upstream AND handle IS NOT NULL AND json_extract(handle, '$[1].task_id') = :task_id
ORDER BY id LIMIT 1;

-- name: own_by_task
SELECT {call in calls} FROM calls
WHERE upstream = :upstream AND principal = :principal AND handle IS NOT NULL AND json_extract(handle, '$[1].task_id') = :task_id
ORDER BY id LIMIT 1;
