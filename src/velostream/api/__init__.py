"""The Python API: the objects that users hold, over a database of this process or of another."""
