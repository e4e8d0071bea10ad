"""One step of a job: its inputs read, its plan computed, its output committed."""
