-- name: get
SELECT number FROM commit_count WHERE id = 1;

-- name: set
UPDATE commit_count SET number = :number WHERE id = 1;
