"""The store: a catalog that is the truth, and two indexes that can be made again from it."""
