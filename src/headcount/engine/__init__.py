"""Measure what a model does under gates: batches, stand-ins, evaluation."""
