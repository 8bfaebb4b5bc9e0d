-- Changes no row while another owner's lease has not run out.
-- name: acquire
INSERT INTO leaders (duty, owner, until) VALUES (:duty, :owner, :until)
ON CONFLICT (duty) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE leaders.owner = excluded.owner OR leaders.until <= :now;

-- name: release
DELETE FROM leaders WHERE duty = :duty AND owner = :owner;

-- name: shorten_lease
UPDATE leaders SET until = :until WHERE duty = :duty AND until > :ends_after;

-- name: is_held
SELECT EXISTS (SELECT 1 FROM leaders WHERE duty = :duty AND until > :now) AS is_held;
