-- name: insert
INSERT INTO login_checks {new login_check} ON CONFLICT (upstream, owner) DO NOTHING;

-- name: due
SELECT {login_check in login_checks} FROM login_checks WHERE due_at <= :now ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: late
SELECT {login_check in login_checks} FROM login_checks WHERE due_at > :latest ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: replace
UPDATE login_checks SET due_at = :due_at, pause_seconds = :pause_seconds WHERE upstream = :upstream AND owner = :owner;

-- name: delete
DELETE FROM login_checks WHERE upstream = :upstream AND owner = :owner;

-- name: waiting
SELECT call_id FROM login_waits WHERE call_id = :call_id;

-- Locks the resumptions in the order of upstreams and owners: two batches of ends may resume the calls of several.
-- name: resume_others
INSERT INTO login_resumptions (upstream, owner, tokens_version, worked_at)
SELECT DISTINCT
    asked.upstream,
    asked.owner,
    (
        SELECT tokens_version + 1 FROM login_waits WHERE upstream = asked.upstream AND owner = asked.owner
        ORDER BY tokens_version DESC LIMIT 1
    ),
    CAST(:worked_at AS BIGINT)
FROM login_waits AS asked WHERE asked.call_id = ANY(:ids::text[])
ORDER BY asked.upstream, asked.owner
ON CONFLICT (upstream, owner) DO UPDATE SET
    tokens_version = greatest(login_resumptions.tokens_version, excluded.tokens_version);
