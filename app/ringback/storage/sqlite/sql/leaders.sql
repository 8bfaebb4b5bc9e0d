-- Changes no row while another owner's lease has not run out.
-- name: acquire
INSERT INTO leaders (duty, owner, until) VALUES (:duty, :owner, :until)
ON CONFLICT (duty) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE leaders.owner = excluded.owner OR leaders.until <= :now;

-- name: release
DELETE FROM leaders WHERE duty = :duty AND owner = :owner;
