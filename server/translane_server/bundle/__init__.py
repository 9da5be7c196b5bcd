"""What a bundle holds."""
