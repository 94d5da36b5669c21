"""Read what heads do inside a model: their outputs and their attention."""
