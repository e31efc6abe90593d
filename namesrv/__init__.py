"""The name server: which brokers exist and which topics they serve."""
