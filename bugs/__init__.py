"""Deliberately broken variants of the reference, one a file, each with one method wrong."""
