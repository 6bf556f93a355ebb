"""A case played again in a process of its own, which it may end."""

from kvref.asked import Asked
from kvref.case import Case
from kvref.errors import BadInput, NotExact
from kvref.isolation.apart import Apart, Lost, Send
from kvref.isolation.check import patience_for
from kvref.replay import Replayed, Result, replay


def replay_apart(case: Case) -> Replayed:
    """Play a case again, in a process of its own unless its target is kvref's own.

    Where the process is lost, the case has failed if it is about a decoder that ends it, and else moved.
    """
    try:
        asked = Asked.of_command(case.check)
        if not asked.foreign:
            return replay(case)
        asked.require_lens(asked.bench())
    except (BadInput, NotExact) as error:
        return Replayed(case, Result.ERROR, str(error))
    try:
        (replayed,) = Apart(played, case).said(patience_for(asked, None))
    except Lost as lost:
        return Replayed(case, Result.FAILED if case.raised else Result.MOVED, str(lost))
    return replayed


def played(send: Send, case: Case) -> None:
    """Play a case, and send what came of it."""
    send(replay(case, prove=False))
