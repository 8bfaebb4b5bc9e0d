-- Ids of tokens begin with the upstream's name and a slash; the character after the slash is 0.
-- name: with_tokens
WITH RECURSIVE found (upstream) AS (
    SELECT (SELECT upstream FROM upstream_tokens WHERE id > '' ORDER BY id LIMIT 1)
    UNION ALL
    SELECT (SELECT upstream FROM upstream_tokens WHERE id >= found.upstream || '0' ORDER BY id LIMIT 1)
    FROM found WHERE found.upstream IS NOT NULL
)
SELECT upstream FROM found WHERE upstream IS NOT NULL LIMIT :limit;

-- name: insert
INSERT INTO unused_logins (upstream, unused_since) VALUES (:upstream, :unused_since) ON CONFLICT (upstream) DO NOTHING;

-- name: delete
DELETE FROM unused_logins WHERE upstream IN (SELECT value FROM json_each(:upstreams));

-- name: due
SELECT {unused_login in unused_logins} FROM unused_logins WHERE unused_since <= :cutoff ORDER BY unused_since LIMIT 1;

-- name: remove_tokens
DELETE FROM upstream_tokens WHERE id IN (
    SELECT id FROM upstream_tokens
    WHERE id >= :upstream || '/' AND id < :upstream || '0' AND obtained_at < :unused_since ORDER BY id LIMIT :limit
);
