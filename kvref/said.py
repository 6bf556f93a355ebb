"""Text for a terminal."""

import re
import textwrap
from collections.abc import Callable

Say = Callable[[str], object]
"""What takes a line that is said."""

WIDTH = 80
"""Columns of the terminal that is written for."""


def filled(text: str, behind: str = "") -> str:
    """A paragraph in lines that fit a terminal, with no code broken; `behind` indents all lines but the first."""
    whole = re.sub("`[^`]+`", lambda code: code[0].replace(" ", "\xa0"), text)
    return textwrap.fill(whole, WIDTH, subsequent_indent=behind, break_on_hyphens=False).replace("\xa0", " ")


def wrapped(text: str, label: str = "", behind: str = "") -> list[str]:
    """Text in lines that fit a terminal, behind a label if there is one; `behind` indents all lines but the first."""
    first, others = f"{label:10}" if label else "", " " * 10 + behind if label else behind
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
