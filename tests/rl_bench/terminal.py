"""What a terminal shows after an output: the few control sequences that live displays use."""

import re
import unicodedata

_PIECE = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n])")


def shown_by(output: str, *, width: int, height: int) -> list[str]:
    r"""The lines of the screen and those that have scrolled out of it, blanks at ends removed.

    Args:
        output: Whole, as it was written; ``\n`` alone begins a new line, as a terminal gets it.
        width: Cells of a line; longer ones go on in the next.
        height: Lines of the screen: the cursor never goes above it.
    """
    lines, row, column = [""], 0, 0
    for numbers, letter, back, newline, char in _PIECE.findall(output):
        if letter == "A":
            row = max(row - int(numbers or 1), len(lines) - height, 0)
        elif letter == "K":
            lines[row] = ""
        elif back:
            column = 0
        elif newline or (char and column >= width):
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        if char:
            assert unicodedata.east_asian_width(char) != "W", "a cell a character"
            line = lines[row].ljust(column)
            lines[row] = line[:column] + char + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]
