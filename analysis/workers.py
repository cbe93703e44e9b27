"""Processes that do parts of a report side by side; results come in the order of the work.

A report is made of runs that need nothing of each other. Each process reads what it needs itself,
is started anew (``spawn``), so that it has no lock or thread of this one, and works with one thread
of polars.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from analysis.errors import WorkerError

Job = TypeVar("Job")
Done = TypeVar("Done")
MOST = 8
"""More processes would wait for the disk and for the one that gives them work."""
_THREADS = "POLARS_MAX_THREADS"
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def num_usable() -> int:
    """Processes that this machine has cores for, `MOST` at most."""
    return min(len(os.sched_getaffinity(0)), MOST)


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the work.

    Attributes:
        num: How many at once.
        pool: Their processes; None: this one does it.
    """

    num: int = 1
    pool: Executor | None = None

    def map(
        self, work: Callable[[Job], Done], jobs: Sequence[Job], *, name: Callable[[Job], str]
    ) -> Iterator[Done]:
        """What ``work`` makes of each job, in their order.

        Processes begin at once, this one does a job when it is asked for it.

        Args:
            work: A function of a module, for it goes to another process.
            jobs: Each is pickled, and so is what is made of it.
            name: Of a job in words, for an error.

        Raises:
            WorkerError: A process ended in the middle of its work; at which job is told.
        """
        if self.pool is None:
            return map(work, jobs)
        futures = []
        for job in jobs:
            with _named(name(job)):
                futures.append(self.pool.submit(work, job))
        return _done(futures, list(map(name, jobs)))


HERE = Workers()
"""This process alone."""


@contextmanager
def workers(num: int) -> Iterator[Workers]:
    """``num`` processes while the context lasts; of one: this one.

    Work that has not begun when the context ends is never done. Where it ends by an error or an
    interrupt, the processes end at once.
    """
    if num <= 1:
        yield HERE
        return
    with _one_thread_each():
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(num, mp_context=context, initializer=_begin)
        try:
            with _uninterrupted():  # between two starts, a pool would forget the first
                pool.submit(num_usable)
            yield Workers(num, pool)
        except BaseException:
            with _uninterrupted():
                for process in set(multiprocessing.active_children()) - before:
                    process.kill()  # what it writes is written whole, or not at all
                pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Interrupts wait until the block is over; processes that start in it are deaf to them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """In a worker: Ctrl-C is for who gives the work, and without that one there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _done(futures: Sequence[Future[Done]], names: Sequence[str]) -> Iterator[Done]:
    for future, name in zip(futures, names, strict=True):
        with _named(name):
            done = future.result()
        yield done


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise WorkerError(
            f"a process ended in the middle of its work, at {name} or soon after",
            cure="If memory did not suffice, --processes 1 needs least",
        ) from error


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children that share the cores do not each start a thread a core."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
