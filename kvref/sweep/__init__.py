"""The sweep: every target of a family, such as each architecture of transformers, checked one after the other.

Nothing of torch is imported here, so that the command line can show its help without it.
"""
