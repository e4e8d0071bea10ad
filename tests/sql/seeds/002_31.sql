-- With schema:
SELECT * FROM postgresql://host/db?schema=public&table=users;
