"""Who speaks when, what is heard, and how well that agrees with a reference."""
