"""The spool: a durable copy of the records read from files, so that every range can be read again."""
