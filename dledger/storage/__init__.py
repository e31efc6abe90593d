"""The log and its small files on disk; through `runtime.disk` only."""
