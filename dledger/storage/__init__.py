"""The log and its small files on disk; through `ledgermq.runtime.disk` only."""
