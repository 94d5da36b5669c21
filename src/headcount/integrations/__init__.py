"""Other programs: Ray."""
