"""How old messages leave: by age, by disk, when asked."""
