-- name: insert
INSERT INTO sign_ins {new sign_in};

-- name: by_hash
SELECT {sign_in in sign_ins} FROM sign_ins WHERE secret_hash = :secret_hash AND expires_at > :now;

-- name: delete
DELETE FROM sign_ins WHERE secret_hash = :secret_hash;

-- name: remove_oldest
DELETE FROM sign_ins WHERE id IN (
    SELECT id FROM sign_ins WHERE principal = :principal ORDER BY id DESC LIMIT -1 OFFSET :sign_ins_kept
);

-- name: remove_expired
DELETE FROM sign_ins WHERE id IN (
    SELECT id FROM sign_ins WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
);
