"""The measurements: one SQLite file, its keys, listing and export."""

from headcount.store.store import Store, StoreContext, describe

__all__ = ["Store", "StoreContext", "describe"]
