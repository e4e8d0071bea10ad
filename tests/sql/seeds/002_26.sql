-- Custom query support:
CREATE TABLE active_users AS
SELECT * FROM postgresql://localhost/mydb?query="SELECT * FROM users WHERE status='active'"
WITH ("poll.interval" = "30s");
