"""The spool: a durable copy of what was read of files, so that every range can be read again."""
