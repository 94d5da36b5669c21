"""Measure what a model does under gates: batches, ablations, evaluation."""
