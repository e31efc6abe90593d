"""Runs of a master and its slaves: RocketMQ's classic modes, with unchanged production code."""
