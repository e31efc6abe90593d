"""The verdict while a run goes on: what can be said at once, from what is recorded so far."""
