"""REPLAY DEAD LETTERS, as a step of a job."""
