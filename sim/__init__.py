"""The whole cluster in one thread and in virtual time: same seed, same run, bit for bit."""
