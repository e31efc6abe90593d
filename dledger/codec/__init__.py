"""Bytes of the log: entries, index units, small property files, peer messages. No I/O."""
