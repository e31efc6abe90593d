"""What the cluster sees of a broker: registration, role, who may administer it."""
