-- Create table reading from beginning (default)
CREATE TABLE user_profiles AS
SELECT * FROM kafka_users;
