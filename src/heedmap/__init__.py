"""Self-attention that you can look into."""
