"""What only the leader of a group does, term by term."""
