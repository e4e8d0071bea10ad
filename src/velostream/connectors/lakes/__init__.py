"""What sinks into tables of a lake share: steps that are recognised, changes by key, columns that fit."""
