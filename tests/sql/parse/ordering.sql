-- names may be used before the statement that creates them
SELECT * FROM third;
CREATE TABLE third AS SELECT id FROM second WHERE id > 1;
CREATE TABLE second AS SELECT id, name FROM by_view;
CREATE VIEW by_view AS SELECT id, name FROM first_source;
CREATE SOURCE first_source (id INT, name STRING) FROM kafka://first;
INSERT INTO hand VALUES (1);
CREATE TABLE hand (id INT PRIMARY KEY);
