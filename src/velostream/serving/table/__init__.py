"""The contract of tables, whatever their storage, and the code that all storages share."""
