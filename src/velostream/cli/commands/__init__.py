"""The commands of `velo`, one file each."""
