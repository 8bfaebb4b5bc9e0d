-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(:upstream || E'\x1f' || :owner, 2));

-- name: add
INSERT INTO login_waits (call_id, upstream, owner, tokens_version)
VALUES (
    :call_id,
    :upstream,
    :owner,
    greatest(
        :tokens_version,
        coalesce((SELECT tokens_version FROM login_resumptions WHERE upstream = :upstream AND owner = :owner), :tokens_version)
    )
)
ON CONFLICT (call_id) DO UPDATE SET
    upstream = excluded.upstream,
    owner = excluded.owner,
    tokens_version = greatest(excluded.tokens_version, login_waits.tokens_version + 1);

-- name: waiting
SELECT call_id FROM login_waits WHERE upstream = :upstream AND owner = :owner AND tokens_version < :tokens_version
ORDER BY tokens_version, call_id LIMIT :limit;

-- name: remove
DELETE FROM login_waits WHERE call_id = ANY(:ids::text[]);

-- name: save_resumption
INSERT INTO login_resumptions {new login_resumption}
ON CONFLICT (upstream, owner) DO UPDATE SET
    worked_at = excluded.worked_at, tokens_version = greatest(login_resumptions.tokens_version, excluded.tokens_version);

-- name: next_resumption
SELECT {login_resumption in login_resumptions} FROM login_resumptions ORDER BY worked_at LIMIT 1;

-- name: remove_resumption
DELETE FROM login_resumptions WHERE upstream = :upstream AND owner = :owner AND tokens_version <= :tokens_version;

-- name: mark_orphans
UPDATE login_waits SET tokens_version = :tokens_version
WHERE upstream = :upstream AND owner >= :first_owner AND owner <= :last_owner;

-- name: resume_orphans
INSERT INTO login_resumptions (upstream, owner, tokens_version, worked_at)
SELECT DISTINCT upstream, owner, CAST(:tokens_version AS BIGINT), CAST(:worked_at AS BIGINT) FROM login_waits
WHERE upstream = :upstream AND owner >= :first_owner AND owner <= :last_owner
ON CONFLICT (upstream, owner) DO NOTHING;
