"""What the HA stream has more where controllers say who is master: epochs, and an in-sync set."""
