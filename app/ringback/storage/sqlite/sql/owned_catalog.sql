-- The last profile and lists of upstreams that a principal uses with credentials of its own.

-- name: of_owner
SELECT {catalog_part in owned_catalog} FROM owned_catalog WHERE owner = :owner AND upstream = :upstream ORDER BY part;

-- name: save_part
INSERT INTO owned_catalog (owner, upstream, part, body, fetched_at) VALUES (:owner, :upstream, :part, :body, :fetched_at)
ON CONFLICT (owner, upstream, part) DO UPDATE SET body = excluded.body, fetched_at = excluded.fetched_at;

-- name: next_upstream
SELECT upstream FROM owned_catalog WHERE upstream > :after ORDER BY upstream LIMIT 1;

-- name: remove_upstream
DELETE FROM owned_catalog WHERE (owner, upstream, part) IN (
    SELECT owner, upstream, part FROM owned_catalog WHERE upstream = :upstream LIMIT :limit
);

-- name: remove_owned
DELETE FROM owned_catalog WHERE owner = :owner AND upstream = :upstream;

-- name: remove_old
DELETE FROM owned_catalog WHERE (owner, upstream, part) IN (
    SELECT owner, upstream, part FROM owned_catalog WHERE fetched_at < :older_than ORDER BY fetched_at LIMIT :limit
);
