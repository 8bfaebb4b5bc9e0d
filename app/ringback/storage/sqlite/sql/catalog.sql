-- The last profile and lists of each upstream.

-- name: all
SELECT {catalog_part in catalog} FROM catalog ORDER BY upstream, part;

-- name: save_part
INSERT INTO catalog {new catalog_part}
ON CONFLICT (upstream, part) DO UPDATE SET body = excluded.body, fetched_at = excluded.fetched_at;

-- name: remove_other_upstreams
DELETE FROM catalog WHERE upstream NOT IN (SELECT value FROM json_each(:upstreams));

-- name: remove_upstream
DELETE FROM catalog WHERE upstream = :upstream;
