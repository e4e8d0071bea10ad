"""The prompt of `velo sql`."""
