"""Small durable files of a job's sources and sinks."""
