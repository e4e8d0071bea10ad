"""The contracts of tables, their versions and storages."""
