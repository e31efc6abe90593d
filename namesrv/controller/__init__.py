"""The controller of master/slave groups: who is master, and who may become it (ADR 20)."""
