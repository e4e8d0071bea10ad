"""Reading the spool: sampling, types, DataFrames."""
