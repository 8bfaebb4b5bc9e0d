-- name: insert
INSERT INTO portal_links {new portal_link};

-- name: by_id
SELECT {portal_link in portal_links} FROM portal_links WHERE id = :id;

-- name: by_hash
SELECT {portal_link in portal_links} FROM portal_links WHERE secret_hash = :secret_hash AND expires_at > :now;

-- '~' sorts after every id.
-- name: page
SELECT {portal_link in portal_links} FROM portal_links WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :limit;

-- Only the index of the principal has this order. With `principal = …` the primary key has it too, and PostgreSQL may read the
-- links of all principals along that.
-- name: page_of_principal
SELECT {portal_link in portal_links} FROM portal_links
WHERE principal >= :principal AND (principal, id) < (:principal, coalesce(:before::text, '~'))
ORDER BY principal DESC, id DESC LIMIT :limit;

-- name: count
SELECT count(*) AS links FROM (SELECT 1 FROM portal_links WHERE principal = :principal LIMIT :limit) AS counted;

-- name: delete
DELETE FROM portal_links WHERE id = :id;

-- Along the index of the principal, which has a bounded number of links (PORTAL_LINKS_MAX). Its order, see above, chooses it.
-- name: delete_of_session
DELETE FROM portal_links USING (
    SELECT id FROM portal_links
    WHERE principal >= :principal AND principal <= :principal
        AND client_session_id = :client_session_id AND created_at <= :until
    ORDER BY principal, id LIMIT :limit
) AS erased
WHERE portal_links.id = erased.id;

-- name: remove_expired
WITH expired AS MATERIALIZED (
    SELECT id FROM portal_links WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM portal_links USING expired WHERE portal_links.id = expired.id;
