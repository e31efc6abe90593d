"""Files of fixed size in a row, below every log and queue. Knows no format of a record."""
