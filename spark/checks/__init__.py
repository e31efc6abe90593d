"""One module per family of anomalies: DataFrames of a history in, DataFrames of anomalies out."""
