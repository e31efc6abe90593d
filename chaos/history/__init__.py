"""The history of a run: tables, message bodies, outcomes, and the decoder of log segments. Pure."""
