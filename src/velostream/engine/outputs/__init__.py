"""Where the result of a step goes: a table, a sink, a reader."""
