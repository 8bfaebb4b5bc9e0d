-- Whether exactly one principal has valid keys that can start or adopt calls. Revoked keys stay in the table. The newest key of a
-- principal is mostly valid, so each step along the index (principal, id) ends at its first row.
-- name: is_single
WITH usable AS NOT MATERIALIZED (
    SELECT principal, id FROM api_keys
    WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
        AND (scopes LIKE '%"calls"%' OR scopes LIKE '%"adopt"%' OR scopes LIKE '%"admin"%')
)
SELECT 1 AS found
FROM (SELECT principal FROM usable ORDER BY principal DESC, id DESC LIMIT 1) AS last
WHERE (
    SELECT principal FROM usable WHERE principal < last.principal ORDER BY principal DESC, id DESC LIMIT 1
) IS NULL;
