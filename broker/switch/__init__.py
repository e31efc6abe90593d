"""A broker that has its role from controllers: who it is, what they say, and the change of role."""
