"""The laws to write: each as it is given, and as it may look when it is done."""
