"""Texts that must fit. No torch here."""

from __future__ import annotations


def shorten_middle(text: str, longest: int) -> str:
    """Leave out the middle of a text that is too long. The end is kept, because it often tells two texts apart.

    >>> shorten_middle("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[len(text) - end :]}"
