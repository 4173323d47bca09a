"""Each Ctrl-C so far: libraries that are being imported may swallow its exception, and then fail with another or go on. Nothing is imported here."""

PRESSED: list[int] = []


def press(number: int, _frame: object) -> None:
    """Note a Ctrl-C and raise KeyboardInterrupt: the handler of the command."""
    PRESSED.append(number)
    raise KeyboardInterrupt
