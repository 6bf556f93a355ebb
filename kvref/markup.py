"""HTML and SVG from plain values: what is not markup already is escaped."""

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *inside: object, **attributes: object) -> Markup:
    """An element; a trailing `_` of an attribute's name is dropped and `_` in it is `-`. None leaves it out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{said}>{joined(*inside)}</{name}>")


def joined(*parts: object) -> Markup:
    """Parts one after the other, each escaped unless it is markup."""
    return Markup("".join(part if isinstance(part, Markup) else escape(shown(part)) for part in parts))


def shown(value: object) -> str:
    """A value as text, with a mark in place of what cannot be shown: control characters and broken Unicode."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in str(value))
