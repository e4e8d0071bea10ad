-- Target SQL Expression:
CREATE TABLE user_profiles AS
SELECT * FROM postgresql://localhost/mydb?table=users
WITH ("cdc" = "true");
