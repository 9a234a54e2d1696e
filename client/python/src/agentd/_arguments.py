"""What callers give: the names and types of arguments, and what help shows of them.

Owns the ``TypeError`` for a wrong one, raised where the caller called. Must not know what the
arguments mean.
"""

from __future__ import annotations

import functools
import inspect
import re
import reprlib
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from .types import Options

F = TypeVar("F", bound=Callable[..., Any])

_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))
_OPTIONS = [
    Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)
    for name, hint in _hints(Options).items()
]


def _help() -> str:
    told = ["\n\nOptions, each by its keyword. What is absent, or None, is the daemon's choice:\n"]
    for option in _OPTIONS:
        text = f"{option.name}: {option.annotation.__metadata__[0]}"
        told.append(textwrap.fill(text, 88, initial_indent="  ", subsequent_indent="      "))
    return "\n".join((*told, *_RAISES))


_RAISES = (
    "",
    "Raises a class of `agentd.errors`, all of them `AgentdError`:",
    "",
    "  UnknownAgentError, AmbiguousError, InvalidRequestError and the like, without a `job`:",
    "      it was refused, and nothing happened",
    "  AgentAuthError, RateLimitError, TurnTimeoutError and the like, with a `job`: it ran and",
    "      failed; `result` has what it had said and done",
    "  OutcomeUnknownError: the connection was lost; its `key` as `idempotency_key` finds the turn",
    "  UnreachableError: nobody serves, and nothing happened",
    "",
    "and a `TypeError` for an argument of a wrong name or type.",
)
_HELP = _help()


def checked(function: F, call: Callable[..., Any] | None = None, returns: object = None) -> F:
    """A function that refuses wrong arguments, with all of them in its signature and its help.
    ``call`` is run in its place, and gives ``returns``."""
    run = call or function
    signature = inspect.signature(function, eval_str=True)
    parameters = list(signature.parameters.values())
    helps = parameters[-1].name == "options"
    if helps:
        parameters[-1:] = _OPTIONS
    shown = [one.replace(annotation=_bare(one.annotation)) for one in parameters]
    returned = returns or signature.return_annotation
    signature = signature.replace(parameters=shown, return_annotation=returned)
    hints = {one.name: one.annotation for one in parameters if one.name != "self"}
    title = function.__qualname__.replace(".__init__", "")

    @functools.wraps(function)
    def checking(*given: Any, **keywords: Any) -> Any:
        wrong = _wrong(signature, hints, given, keywords)
        if wrong is not None:
            raise type(wrong)(f"{title}() {wrong}")
        return run(*given, **keywords)

    checking.__module__ = run.__module__
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None and inspect.iscoroutinefunction(run):
        mark(checking)
    checking.__signature__ = signature  # type: ignore[attr-defined]
    if helps:
        checking.__doc__ = inspect.cleandoc(function.__doc__ or "") + _HELP
    return cast(F, checking)


def _wrong(
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    given: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> Exception | None:
    """What is wrong with a call."""
    if not any(one.kind is Parameter.VAR_KEYWORD for one in signature.parameters.values()):
        for name in keywords:
            if name not in hints:
                return _unknown(name, hints)
    try:
        bound = signature.bind(*given, **keywords).arguments
    except TypeError as problem:
        return problem
    found = (_problem(name, value, hints[name]) for name, value in bound.items() if name in hints)
    return next(filter(None, found), None)


def _unknown(name: str, known: Iterable[str]) -> TypeError:
    near = get_close_matches(name, known, 1)
    others = f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(known)}"
    return TypeError(f"got an unexpected keyword argument {name!r}. {others}")


def _problem(where: str, value: object, hint: Any) -> Exception | None:
    """What is wrong with a value where ``hint`` is expected."""
    choices = _choices(hint)
    for choice in choices:
        if is_typeddict(choice) and isinstance(value, Mapping):
            return _problem_of_members(where, value, choice)
        if get_origin(choice) in (list, Iterable) and isinstance(value, list | tuple):
            inside = get_args(choice)[0]
            found = (_problem(f"{where}[{n}]", one, inside) for n, one in enumerate(value))
            return next(filter(None, found), None)
    if any(_fits(value, choice) for choice in choices):
        return None
    expected = " or ".join(_word(choice) for choice in choices if choice is not type(None))
    told = f"got {where}={reprlib.repr(value)}, expected {expected}"
    if get_origin(hint) is Annotated:
        told += f": {hint.__metadata__[0]}"
    of_words = isinstance(value, str) and any(get_origin(one) is Literal for one in choices)
    return ValueError(told) if of_words else TypeError(told)


def _problem_of_members(where: str, value: Mapping[Any, object], kind: type) -> Exception | None:
    """A member that isn't like any may be a newer daemon's: that one says what it knows."""
    known = _hints(kind)
    for name, member in value.items():
        if name in known:
            problem = _problem(f"{where}[{name!r}]", member, known[name])
            if problem is not None:
                return problem
        elif near := get_close_matches(str(name), known, 1):
            return TypeError(f"got {name!r} in {where}. Did you mean {near[0]!r}?")
    return None


def _choices(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Annotated:
        return _choices(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: object, hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is Any:
        return True
    if origin is Literal:
        return value in get_args(hint)
    if origin in (int, float):
        return isinstance(value, (int, origin)) and not isinstance(value, bool)
    if origin is list:
        return isinstance(value, list | tuple)
    if origin is dict:
        inside = get_args(hint)[1]
        return isinstance(value, Mapping) and all(
            isinstance(name, str) and _fits(one, inside) for name, one in value.items()
        )
    if origin is Iterable:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return isinstance(value, Mapping if is_typeddict(origin) else origin)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _word(hint: Any) -> str:
    """A type as people write it."""
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    return re.sub(r"\b(\w+\.)+", "", str(hint))
