"""Request processors: hot ones take frames, the others take commands and answer them."""
