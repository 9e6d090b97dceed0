"""The claims of the lesson, measured: what would happen without self-attention, or without √d."""
