"""Post-training that makes attention sparse: `headcount sparsify`."""
