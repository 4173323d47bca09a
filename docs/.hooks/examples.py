"""For mkdocstrings: docstrings open with bare >>> examples, which Markdown would take for quotations. Fence them."""

import re

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 +.*)*", re.MULTILINE)


class FenceExamples(griffe.Extension):
    """Puts ```pycon around every run of lines that starts with >>>, up to the next blank line."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Change the docstring before it is rendered."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(self._fence, obj.docstring.value)

    @staticmethod
    def _fence(found: re.Match[str]) -> str:
        indent = found[1]
        lines = [line.removeprefix(indent) for line in found[0].split("\n")]
        return "\n".join(["```pycon", *lines, "```"])
