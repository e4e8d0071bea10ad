-- Wildcard field discovery (automatically discovers all fields)
CREATE TABLE user_profiles AS
SELECT * FROM kafka_users;
