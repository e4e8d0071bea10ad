"""Sources and sinks: the contract, the registry, and one folder per kind."""
