"""HumanEval's prompts, and how a completion becomes a program.

``chat``: the problem in one message; the first fenced block with the function counts, else the
first block, else the whole answer, as in the published evaluation (OpenCompass, ``humaneval_gen``,
which takes the first block). Whole functions and bare bodies are both understood.
``base``: the problem as plain text, continued until the function is over; stop sequences and
their source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code".
"""

import re
import textwrap
from enum import StrEnum

from envs.protocol import ChatMessage
from rl_bench.engine.base import GenerationRequest, Sampling
from rl_bench.tasks.humaneval.data import Row
from rl_bench.tasks.reasoning import without_reasoning

PROBLEM = "{prompt}"
BASE_STOP = ("\nclass ", "\ndef ", "\n#", "\nif", "\nprint")
_INDENT = " " * 4
# A fence that is never closed ends with the text. In a list, it is indented as its item is.
_BLOCK = re.compile(
    r"(?:^(?P<margin>[ \t]+))?(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<code>.*?)(?:(?P=fence)|\Z)",
    re.DOTALL | re.MULTILINE,
)
_FUTURE = re.compile(
    r"^(?P<line>from[ \t]+__future__[ \t]+import[ \t]*(?:\([^)]*\)|[^\n;#(]*))(?:;[ \t]*)?",
    re.MULTILINE,
)


class PromptStyle(StrEnum):
    """The protocols of this task."""

    CHAT = "chat"
    BASE = "base"


def request(row: Row, *, style: PromptStyle, template: str, max_tokens: int) -> GenerationRequest:
    """The request for one problem, greedy; ``template`` holds ``{prompt}`` and is for chats."""
    if style is PromptStyle.BASE:
        return GenerationRequest(
            text=row.prompt, sampling=Sampling(max_tokens=max_tokens, stop=BASE_STOP)
        )
    message: ChatMessage = {"role": "user", "content": template.replace(PROBLEM, row.prompt)}
    return GenerationRequest(messages=(message,), sampling=Sampling(max_tokens=max_tokens))


def program(row: Row, text: str, *, style: PromptStyle) -> str:
    """The Python source that ``text`` makes of a problem; empty if it answers nothing."""
    if not text.strip():
        return ""
    if style is PromptStyle.BASE:
        return row.prompt + text
    code = extract_code(text, entry_point=row.entry_point)
    if defines(code, row.entry_point):
        # The head stays before it: its imports and helpers may be needed, and count as given.
        return _future_first(f"{row.prompt}\n{code}")
    return row.prompt + as_body(code) if code.strip() else ""


def extract_code(text: str, *, entry_point: str) -> str:
    """The part of an answer that is code."""
    answer = without_reasoning(text)
    blocks = [_block(match, entry_point=entry_point) for match in _BLOCK.finditer(answer)]
    whole = (block for block in blocks if defines(block, entry_point))
    return str(next(whole, blocks[0] if blocks else answer))


def _block(match: re.Match[str], *, entry_point: str) -> str:
    """A block's code without what indents its fence, or indents all of a whole function."""
    lines, margin = match["code"].splitlines(keepends=True), len(match["margin"] or "")
    code = "".join(line[min(margin, len(line) - len(line.lstrip(" \t"))) :] for line in lines)
    even = textwrap.dedent(code)
    return even if defines(even, entry_point) else code


def _future_first(source: str) -> str:
    """``source`` with its future imports at the top, the only place where Python takes them."""
    found = "".join(f"{match['line'].rstrip()}\n" for match in _FUTURE.finditer(source))
    return found + _FUTURE.sub("", source)


def defines(code: str, entry_point: str) -> bool:
    """Whether ``code`` defines a function of this name at its top level."""
    return re.search(rf"^def\s+{re.escape(entry_point)}\b", code, re.MULTILINE) is not None


def as_body(code: str) -> str:
    """Lines of a function's body, with the indentation that they need and may have lost."""
    lines = code.strip("\n").splitlines()
    if not lines or lines[0][:1].isspace():
        return code
    rest = next((line for line in lines[1:] if line.strip()), "")
    indent = len(rest) - len(rest.lstrip())
    # Chat answers are often stripped: then only the first line has lost its indentation, and what
    # it opens stands two levels deep.
    is_open = lines[0].rstrip().endswith((":", "(", "[", "{", ",", "\\"))
    if indent > (len(_INDENT) if is_open else 0):
        return "\n".join([_INDENT + lines[0], *lines[1:]]) + "\n"
    return textwrap.indent("\n".join(lines), _INDENT) + "\n"
