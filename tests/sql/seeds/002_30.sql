-- Direct table access:
SELECT * FROM postgresql://host/db?table=tablename;
