"""Values under head sets: sweeps, batches, plans and passes."""
