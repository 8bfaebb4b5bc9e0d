-- name: insert
INSERT INTO portal_links {new portal_link};

-- name: by_id
SELECT {portal_link in portal_links} FROM portal_links WHERE id = :id;

-- name: by_hash
SELECT {portal_link in portal_links} FROM portal_links WHERE secret_hash = :secret_hash AND expires_at > :now;

-- '~' sorts after every id.
-- name: page
SELECT {portal_link in portal_links} FROM portal_links WHERE id < coalesce(:before, '~') ORDER BY id DESC LIMIT :limit;

-- name: page_of_principal
SELECT {portal_link in portal_links} FROM portal_links
WHERE principal = :principal AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT :limit;

-- name: count
SELECT count(*) AS links FROM (SELECT 1 FROM portal_links WHERE principal = :principal LIMIT :limit);

-- name: delete
DELETE FROM portal_links WHERE id = :id;

-- Along the index of the principal, which has a bounded number of links (PORTAL_LINKS_MAX).
-- name: delete_of_session
DELETE FROM portal_links WHERE id IN (
    SELECT id FROM portal_links
    WHERE principal = :principal AND client_session_id = :client_session_id AND created_at <= :until
    ORDER BY id LIMIT :limit
);

-- name: remove_expired
DELETE FROM portal_links WHERE id IN (
    SELECT id FROM portal_links WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
);
