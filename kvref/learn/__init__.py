"""A course in KV caches: repair one that is wrong, write the law that catches a bug, say what went wrong."""
