"""The write path: records appended, not committed yet, and the senders who wait."""
