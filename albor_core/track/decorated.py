"""A function whose every call is a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from albor_core.track.start_run import start

Function = Callable[..., Any]


def tracked(experiment: str | Function = "default", *args: Any, **settings: Any) -> Any:
    """A decorator that makes each call of a function a run, which ends as the call does. The
    arguments are those of `start`; without `name` the run is called as the function is.

        @track.tracked("tiny", max_steps=1000)
        def train(lr, run):
            run.params({"lr": lr})

    A function with a parameter `run` is given the run. Coroutine functions are functions too.
    """
    if not isinstance(experiment, str):
        return tracked()(experiment)  # @track.tracked without brackets

    def decorate(function: Function) -> Function:
        given = dict(settings)
        if len(args) < 1:
            given.setdefault("name", function.__name__)
        takes_run = "run" in inspect.signature(function).parameters

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*words: Any, **named: Any) -> Any:
                with start(experiment, *args, **given) as run:
                    return await function(*words, **named, **({"run": run} if takes_run else {}))

            return waited

        @functools.wraps(function)
        def called(*words: Any, **named: Any) -> Any:
            with start(experiment, *args, **given) as run:
                return function(*words, **named, **({"run": run} if takes_run else {}))

        return called

    return decorate
