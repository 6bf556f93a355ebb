"""Tests of the tool. The laws of caches are in `properties/`."""
