"""Many runs of scenarios: which comes next, what is kept of each, what they found together."""
