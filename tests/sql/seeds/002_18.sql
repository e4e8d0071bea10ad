-- Create table reading from latest offset
CREATE TABLE user_profiles AS
SELECT * FROM kafka_users
WITH ("auto.offset.reset" = "latest");
