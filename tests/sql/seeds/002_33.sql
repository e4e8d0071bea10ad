-- Custom query:
SELECT * FROM postgresql://host/db?query="SELECT id, name FROM users WHERE active=true";
