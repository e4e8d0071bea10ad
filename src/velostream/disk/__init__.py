"""Files on the local disk: private ones, and the errors of the file system."""
