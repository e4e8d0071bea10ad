-- Time-based polling:
WITH (
    "poll.interval" = "30s",
    "incremental.column" = "updated_at",
    "poll.query" = "SELECT * FROM table WHERE updated_at > ?"
);
