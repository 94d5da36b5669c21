"""The machine we run on: cache folder, files, locks, progress bars, wheels."""
