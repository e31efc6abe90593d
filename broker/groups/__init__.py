"""Producers and consumers: who is connected, their groups and subscriptions."""
