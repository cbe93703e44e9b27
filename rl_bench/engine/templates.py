"""Chat templates rendered within limits of time and memory, in a process of their own.

A template is a program that a submission brings. In the grader's process an endless loop in it, or
one huge number, would stop the engine for every run.
"""

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from envs.protocol import ChatMessage
from rl_bench.errors import GraderError

RENDER_LIMIT_S = 10.0
"""A usual template takes a millisecond."""
START_LIMIT_S = 120.0
_CHILD = Path(__file__).with_name("template_child.py")


class TemplateFault(Exception):  # noqa: N818  the template's fault, not this module's error
    """The template failed, or went beyond its limits."""


class TemplateRenderer:
    """Renders with one child process, started when needed and again after it was ended.

    Args:
        limit_s: The most that one call may take, seconds.
    """

    def __init__(self, *, limit_s: float = RENDER_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._mutex = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def render(
        self,
        template: str,
        chats: Sequence[Sequence[ChatMessage]],
        *,
        special: Mapping[str, object],
    ) -> list[str]:
        """The texts of chats that the model is to answer, in order.

        Args:
            template: Jinja source.
            chats: Each a sequence of messages; one trip to the child and one limit for all.
            special: Special tokens by the names that templates know them by.

        Raises:
            TemplateFault: The template raised, took too long or asked for too much memory.
            GraderError: No process could be started.
        """
        line = json.dumps([template, list(map(list, chats)), special], default=str).encode() + b"\n"
        with self._mutex:
            child = self._running()
            assert child.stdin is not None
            try:
                child.stdin.write(line)
                child.stdin.flush()
                answer: dict[str, Any] = json.loads(self._read(child, limit_s=self._limit_s))
            except TimeoutError:
                self._end()
                raise TemplateFault(f"it takes longer than {self._limit_s:g} s") from None
            except (EOFError, BrokenPipeError):
                self._end()
                raise TemplateFault("it ended the process that rendered it") from None
        if "error" in answer:
            raise TemplateFault(answer["error"])
        texts: list[str] = answer["texts"]
        return texts

    def close(self) -> None:
        """Ends the process; the next rendering starts another."""
        with self._mutex:
            self._end()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._end()
        try:
            # -P: modules beside the script must not stand for installed ones.
            self._child = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._read(self._child, limit_s=START_LIMIT_S)
        except (OSError, EOFError) as error:  # TimeoutError is an OSError
            self._end()
            raise GraderError(f"chat templates cannot be rendered: {error}") from error
        return self._child

    def _read(self, child: "subprocess.Popen[bytes]", *, limit_s: float) -> bytes:
        assert child.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(deadline - time.monotonic(), 0.0)):
                    raise TimeoutError
                block = _read_some(child.stdout)
                if not block:
                    raise EOFError("the process ended")
                self._buffer += block
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _end(self) -> None:
        child, self._child, self._buffer = self._child, None, b""
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


@cache
def shared_renderer() -> TemplateRenderer:
    """The one renderer of this process."""
    renderer = TemplateRenderer()
    atexit.register(renderer.close)
    return renderer


def _read_some(pipe: IO[bytes]) -> bytes:
    return os.read(pipe.fileno(), 1 << 16)
