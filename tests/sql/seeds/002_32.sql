-- With filters:
SELECT * FROM mysql://host/db?table=orders&where="status='active'";
