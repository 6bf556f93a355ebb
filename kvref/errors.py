"""What kvref raises: one line each, saying what is wrong and what to do."""

STOPPED = 4
"""Exit code of what was stopped before its end, or came to nothing."""


class KvrefError(Exception):
    """Anything that kvref itself raises on purpose."""


class BadInput(KvrefError):
    """Something that a user gave cannot be used; the command line exits with 2."""


class ConfigError(BadInput, ValueError):
    """A model shape that cannot exist."""


class CheckpointError(BadInput):
    """A checkpoint that is missing, unreadable, unsafe or of another shape."""


class PromptError(BadInput, ValueError):
    """A prompt or text file that cannot be used."""


class TargetError(BadInput):
    """A target string that does not lead to a decoder."""


class NoCache(TargetError):
    """A target that keeps nothing of past tokens, so that there is nothing to test."""


class BugError(BadInput):
    """A file of the catalogue that holds no bug, or not one alone."""


class MatrixError(BadInput, ValueError):
    """A saved kill matrix that cannot be read, or that is about other bugs and laws than there are."""


class ScheduleError(BadInput, ValueError):
    """A schedule that asks for the impossible, such as a crop beyond the length."""


class CaseError(BadInput, ValueError):
    """A case that cannot be read, or that asks for what there is not."""


class ContextOverflow(KvrefError, ValueError):
    """More tokens than the model has positions for. Nothing was written."""


class CacheFull(KvrefError, ValueError):
    """More tokens than a preallocated cache has slots for. Nothing was written."""


class NotInterceptable(KvrefError):
    """An operator whose numerics the exact lens neither knows to be harmless nor can replace."""


class RangeExceeded(KvrefError):
    """Numbers that are too large for the exact lens to add up exactly."""


class NotExact(KvrefError):
    """The exact lens cannot claim its bits here: an operator is not what a mode assumes."""


def one_line(error: BaseException) -> str:
    """An exception of somebody else in one line, whatever its text is and even where asking for it raises."""
    try:
        text = str(error)
    except Exception:
        text = "(it cannot say what it is)"
    return " ".join(f"{type(error).__name__}: {text}".split()).encode(errors="replace").decode()
