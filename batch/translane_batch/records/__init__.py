"""Files of records: lines of text, columns, JSON objects and Parquet. Each kind is read, and written with answers."""
