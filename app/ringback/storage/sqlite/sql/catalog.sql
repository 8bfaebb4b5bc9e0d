-- What upstreams told of themselves and listed last.

-- name: all
SELECT * FROM catalog ORDER BY upstream, part;

-- name: put
INSERT INTO catalog (upstream, part, body, fetched_at) VALUES (:upstream, :part, :body, :fetched_at)
ON CONFLICT (upstream, part) DO UPDATE SET body = excluded.body, fetched_at = excluded.fetched_at;

-- name: keep_only
DELETE FROM catalog WHERE upstream NOT IN (SELECT value FROM json_each(:upstreams));
