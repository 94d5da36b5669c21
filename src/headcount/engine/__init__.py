"""Run a model under head sets: measure values, write texts, read head outputs and attention."""
