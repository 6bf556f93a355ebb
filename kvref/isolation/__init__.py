"""Somebody else's code in a process of its own: what hangs or dies there costs one law."""

from kvref.isolation.apart import Apart, Died, Lost, Silent
from kvref.isolation.check import Isolated, patience_for
from kvref.isolation.replay import replay_apart

__all__ = ["Apart", "Died", "Isolated", "Lost", "Silent", "patience_for", "replay_apart"]
