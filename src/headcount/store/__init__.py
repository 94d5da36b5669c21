"""The measurements: one SQLite file, its keys, listing and export."""

from headcount.store.store import FORMAT, Store, StoreContext, describe

__all__ = ["FORMAT", "Store", "StoreContext", "describe"]
