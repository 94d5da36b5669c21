"""Measure the metric of each example under each head set: sweeps, batches, plans and passes."""
