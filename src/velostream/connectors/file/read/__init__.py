"""Files as rows: sampling, types, DataFrames."""
