"""heedmap."""
