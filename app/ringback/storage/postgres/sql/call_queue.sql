-- One look into the index for each upstream.
-- name: queued_upstreams
SELECT wanted.upstream FROM unnest(:upstreams::text[]) AS wanted (upstream)
CROSS JOIN LATERAL (SELECT 1 FROM calls WHERE phase = 'queued' AND calls.upstream = wanted.upstream LIMIT 1) AS found;

-- Steps from principal to principal along the index instead of reading the whole queue: ten thousand calls of one principal
-- cost no more than one. Each principal gets one call a turn; the principal that was served longest ago comes first. Calls that
-- another node is leasing are skipped, so a node may get fewer than are queued: the node that leased all that it had capacity for
-- notifies the others when it has committed. A paused upstream gets none, and so do the principals in `without`. Each of the others
-- gets `limit_each` at most, less its `running_calls`. One call of each principal is enough if so many have calls that other nodes do
-- not lease all of these at the same moment.
-- A turn that another transaction is counting is not written a second time: its node may be frozen, and a lease that waited for it
-- would keep the calls of all principals. The same holds for a principal's first turn, by a lock of its own, because a row that is
-- not committed cannot be skipped. The principal of the last call comes last in the next turns. Arguments of more than `argument_bytes_max` are
-- left out.
-- (The empty text, and the candidates as an array, keep PostgreSQL from reading the whole queue once more while it believes that the
-- queue is empty. It also believes that the array is short: it would compare each candidate with each row, so their numbers are looked
-- up in an object.)
-- name: lease_queued
WITH RECURSIVE waiting (principal) AS (
    (
        SELECT principal FROM calls
        WHERE phase = 'queued' AND upstream = :upstream AND NOT EXISTS (
            SELECT 1 FROM upstream_controls WHERE upstream_controls.upstream = :upstream AND intake = 'paused'
        )
        ORDER BY principal LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT principal FROM calls
        WHERE phase = 'queued' AND upstream = :upstream AND principal > waiting.principal
        ORDER BY principal LIMIT 1
    )
    FROM waiting WHERE waiting.principal IS NOT NULL
),
wanted_each AS MATERIALIZED (
    SELECT CASE
        WHEN count(principal) - cardinality(:without::text[]) - cardinality(:running_calls::bigint[]) >= :limit + 1000 THEN 1
        ELSE :limit
    END AS calls
    FROM waiting
),
candidates AS MATERIALIZED (
    SELECT oldest.id, row_number() OVER (ORDER BY oldest.place, coalesce((
        SELECT ticket FROM turns WHERE turns.upstream = :upstream AND turns.principal = waiting.principal
    ), 0), oldest.id) AS number
    FROM waiting
    LEFT JOIN unnest(:running_principals::text[], :running_calls::bigint[]) AS running (principal, calls)
        ON running.principal = waiting.principal
    CROSS JOIN LATERAL (
        SELECT id, row_number() OVER (ORDER BY id) AS place FROM calls
        WHERE phase = 'queued' AND upstream = :upstream AND principal = waiting.principal
        ORDER BY id LIMIT (SELECT wanted_each.calls FROM wanted_each)
    ) AS oldest
    WHERE waiting.principal <> ALL(:without::text[]) AND coalesce(running.calls, 0) + oldest.place <= :limit_each
),
numbers AS MATERIALIZED (SELECT jsonb_object_agg(id, number) AS by_id FROM candidates),
queued AS MATERIALIZED (
    SELECT id, principal, ((SELECT by_id FROM numbers) -> id)::bigint AS number
    FROM (
        SELECT calls.id, calls.principal FROM calls
        WHERE calls.id = ANY(ARRAY(SELECT candidates.id FROM candidates)) AND calls.phase || '' = 'queued'
        ORDER BY ((SELECT by_id FROM numbers) -> calls.id)::bigint
        LIMIT :limit
        FOR NO KEY UPDATE OF calls SKIP LOCKED
    ) AS locked
),
leased AS (
    UPDATE calls SET phase = 'running', lease_owner = :owner, lease_token = :token, lease_until = :until
    WHERE id = ANY(ARRAY(SELECT queued.id FROM queued))
    RETURNING calls.*
),
served AS MATERIALIZED (
    SELECT principal, row_number() OVER (ORDER BY max(number)) AS place FROM queued GROUP BY principal
),
next AS MATERIALIZED (SELECT nextval('turn_tickets') AS ticket WHERE EXISTS (SELECT 1 FROM queued)),
unlocked AS MATERIALIZED (
    SELECT principal FROM turns
    WHERE upstream = :upstream AND principal = ANY(ARRAY(SELECT served.principal FROM served))
    FOR NO KEY UPDATE SKIP LOCKED
),
moved AS (
    UPDATE turns SET ticket = next.ticket + (SELECT place FROM served WHERE served.principal = turns.principal) FROM next
    WHERE upstream = :upstream AND turns.principal = ANY(ARRAY(SELECT unlocked.principal FROM unlocked))
),
first_served AS MATERIALIZED (
    SELECT principal, place FROM served
    WHERE principal <> ALL(ARRAY(
        SELECT principal FROM turns
        WHERE upstream = :upstream AND principal = ANY(ARRAY(SELECT served.principal FROM served))
    ))
),
added AS (
    INSERT INTO turns (upstream, principal, ticket)
    SELECT :upstream::text, first_served.principal, next.ticket + first_served.place
    FROM next CROSS JOIN first_served
    WHERE pg_try_advisory_xact_lock(hashtextextended(:upstream || E'\x1f' || first_served.principal, 12))
    ON CONFLICT DO NOTHING
),
whole_leased AS (
    SELECT
        leased.*,
        (
            SELECT inputs.arguments FROM inputs
            WHERE inputs.call_id = leased.id AND leased.argument_bytes <= :argument_bytes_max
        ) AS arguments,
        (SELECT inputs.meta FROM inputs WHERE inputs.call_id = leased.id) AS meta
    FROM leased
)
SELECT {whole_call in whole_leased} FROM queued JOIN whole_leased ON whole_leased.id = queued.id ORDER BY queued.number;

-- Returns a row if the turn counts. A turn that another transaction is counting for this principal is not written a second time, so
-- that calls which start at the same time do not wait for each other. A turn that does not count is not locked: the transaction goes
-- on with `lease_queued`.
-- name: take_turn
WITH free AS MATERIALIZED (
    SELECT nextval('turn_tickets') AS ticket
    WHERE NOT EXISTS (SELECT 1 FROM calls WHERE phase = 'queued' AND upstream = :upstream)
        AND NOT EXISTS (
            SELECT 1 FROM upstream_controls WHERE upstream_controls.upstream = :upstream AND intake = 'paused'
        )
),
served AS MATERIALIZED (
    SELECT turns.upstream, turns.principal FROM turns
    WHERE turns.upstream = :upstream AND turns.principal = :principal AND EXISTS (SELECT 1 FROM free)
    FOR NO KEY UPDATE SKIP LOCKED
),
moved AS (
    UPDATE turns SET ticket = free.ticket FROM free, served
    WHERE turns.upstream = served.upstream AND turns.principal = served.principal
),
first_served AS MATERIALIZED (
    SELECT ticket FROM free
    WHERE NOT EXISTS (SELECT 1 FROM turns WHERE turns.upstream = :upstream AND turns.principal = :principal)
),
added AS (
    INSERT INTO turns (upstream, principal, ticket)
    SELECT :upstream, :principal, first_served.ticket FROM first_served
    WHERE pg_try_advisory_xact_lock(hashtextextended(:upstream || E'\x1f' || :principal, 12))
    ON CONFLICT DO NOTHING
)
SELECT ticket FROM free;

-- Locks the rows in the order of their ids, as a batch of ends does.
-- name: extend
WITH held AS MATERIALIZED (
    SELECT id FROM calls WHERE id = ANY(:ids::text[]) AND lease_owner = :owner ORDER BY id FOR NO KEY UPDATE
)
UPDATE calls SET lease_until = :until FROM held WHERE calls.id = held.id
RETURNING calls.id, calls.cancel_requested;

-- name: extend_unlocked
WITH held AS MATERIALIZED (
    SELECT id FROM calls WHERE id = ANY(:ids::text[]) AND lease_owner = :owner ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE calls SET lease_until = :until FROM held WHERE calls.id = held.id
RETURNING calls.id, calls.cancel_requested;

-- The janitors of several nodes share the work: each skips what another one has locked.

-- name: lease_expired
SELECT {call in calls} FROM calls
WHERE id = ANY(ARRAY(
    (SELECT id FROM calls WHERE phase = 'running' AND lease_until IS NULL LIMIT :limit)
    UNION ALL
    (SELECT id FROM calls WHERE phase = 'running' AND lease_until <= :now ORDER BY lease_until LIMIT :limit)
)) AND phase || '' = 'running' AND (lease_until IS NULL OR lease_until <= :now)
ORDER BY id LIMIT :limit
{lock calls skip locked};

-- The empty text keeps PostgreSQL from reading all running calls while it believes that there are none.
-- name: lease_expired_of
SELECT {call in calls} FROM calls
WHERE id = ANY(ARRAY(
    SELECT id FROM calls WHERE phase = 'running' AND lease_until <= :now AND lease_owner = :owner
    ORDER BY lease_until LIMIT :limit
)) AND phase || '' = 'running' AND lease_until <= :now AND lease_owner = :owner
ORDER BY id
{lock calls skip locked};

-- Queued calls that were sent have a grace: their runner cancels them at the upstream. They must not be in the way of the others.
-- name: past_deadline
SELECT {call in calls} FROM calls
WHERE phase IN ('queued', 'parked') AND deadline_at <= :now AND (
    deadline_at <= :grace_end OR phase = 'parked' OR dispatched_at IS NULL OR handle LIKE :stateless_handle
)
ORDER BY deadline_at LIMIT :limit
{lock calls skip locked};

-- name: leased
SELECT {call in calls} FROM calls
WHERE phase = 'running' AND (lease_owner IS NOT DISTINCT FROM :owner) = :own
ORDER BY lease_until LIMIT :limit
{lock calls skip locked};

-- Two units that adopt one task come one after the other. Its own statement, because a statement sees what was committed before it.
-- name: lock_task
SELECT pg_advisory_xact_lock(hashtextextended(:upstream || E'\x1f' || :task_id, 1));

-- Compares JSON texts without U+0000, as the index does.
-- name: by_task
SELECT {call in calls} FROM calls
WHERE upstream = :upstream AND handle IS NOT NULL
    AND hashtextextended((replace(handle, '\u0000', '\ufffd')::json #> '{1,task_id}')::text COLLATE "C", 0)
        = hashtextextended(replace(to_json(:task_id::text)::text, '\u0000', '\ufffd') COLLATE "C", 0)
    AND (replace(handle, '\u0000', '\ufffd')::json #> '{1,task_id}')::text
        = replace(to_json(:task_id::text)::text, '\u0000', '\ufffd')
ORDER BY id LIMIT 1;

-- name: own_by_task
SELECT {call in calls} FROM calls
WHERE upstream = :upstream AND principal || '' = :principal AND handle IS NOT NULL
    AND hashtextextended((replace(handle, '\u0000', '\ufffd')::json #> '{1,task_id}')::text COLLATE "C", 0)
        = hashtextextended(replace(to_json(:task_id::text)::text, '\u0000', '\ufffd') COLLATE "C", 0)
    AND (replace(handle, '\u0000', '\ufffd')::json #> '{1,task_id}')::text
        = replace(to_json(:task_id::text)::text, '\u0000', '\ufffd')
ORDER BY id LIMIT 1;
