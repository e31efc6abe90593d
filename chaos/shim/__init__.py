"""A library between a broker and its disk and clock, and how it is built and commanded."""
