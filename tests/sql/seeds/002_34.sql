-- Parameterized query:
SELECT * FROM mysql://host/db?query="SELECT * FROM orders WHERE date >= ?"
WITH ("query.params" = "2024-01-01");
