"""The machine: cache folder, files, checksums, progress bars, wheels, transformers' internals."""
