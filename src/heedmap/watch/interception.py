"""Where the attention of a running model passes, in every thread, and who is told.

Three nets, none of which changes what a model computes:

- a hook for all modules, which knows what is being run (kept outside the modules: a hook of a
  module's own would switch off the fast paths of `torch.nn.TransformerEncoder`);
- a `TorchFunctionMode`, which sees PyTorch's functions however the code came by them. Those fast
  paths look for one, too, so it is put aside while PyTorch's own layers run;
- and for these, the functions that they call by name are wrapped.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from heedmap.errors import BudgetError
from heedmap.watch.call import Call
from heedmap.watch.mask_reading import MaskReader
from heedmap.watch.plain import Trail

Undo = Callable[[], object]
"""Puts back what was changed."""

GetWeights = Callable[[], Tensor]
"""Makes the weights of a call that was just told of."""

_SHY = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""Modules that compute in another way where a `TorchFunctionMode` looks on."""


@runtime_checkable
class Listener(Protocol):
    """Who is told about calls of attention, and knows the modules of a model."""

    names: dict[int, str]
    """The names of the model's modules by their ids."""

    thread: int
    """The thread in which calls outside any module are the model's own."""

    def take(self, name: str, module: nn.Module | None, call: Call) -> GetWeights | None:
        """Note one call that `module` made; return how to get its weights, if they are kept."""
        ...

    def miss(self, name: str, door: str, reason: str) -> None:
        """Note a call that could not be read."""
        ...

    def ran(self, name: str) -> None:
        """Note that a module was run."""
        ...

    def passed(self) -> None:
        """Note that the model ran through, or left a call outside any module."""
        ...


class Entered(NamedTuple):
    """A module that is being run."""

    module: nn.Module
    known: bool
    switched: bool


class _Here(threading.local):
    """What is going on in one thread."""

    def __init__(self) -> None:
        self.modules: list[Entered] = []
        self.sees = False
        self.inside_call = 0
        self.generation = 0
        self.reader = MaskReader()
        self.trail = Trail()
        self.crosses: bool | None = None
        self.interface: Any = None


here = _Here()
_listeners: list[Listener] = []
_lock = threading.RLock()
_undo: list[Undo] = []
_generation = 0


Door = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Calls a function with these arguments, tells about it, and returns what it returned."""

DOORS: dict[Any, Door] = {}
"""The functions of PyTorch through which attention passes; filled by `doors`."""


class _Net(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        door = None if here.inside_call else DOORS.get(func)
        if door is None:
            return func(*args, **(kwargs or {}))
        return door(func, args, kwargs or {})


_net = _Net()


def wrapped(func: Any) -> Callable[..., Any]:
    """Return a stand-in for a function that others call by its name."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        door = None if here.inside_call else DOORS.get(func)
        return func(*args, **kwargs) if door is None else door(func, args, kwargs)

    return call


@contextmanager
def inside_call() -> Iterator[None]:
    """Tell no one about what is called in this block."""
    here.inside_call += 1
    try:
        # What we compute ourselves need not pass the net either.
        with unseen():
            yield
    finally:
        here.inside_call -= 1


@contextmanager
def unseen() -> Iterator[None]:
    """Put the mode aside for this block, where it lies on top."""
    was = here.sees
    if was:
        _see(False)
    hidden = was and not here.sees
    try:
        yield
    finally:
        if hidden:
            _see(True)


def is_watched() -> bool:
    """Return whether a call made here and now is one that somebody wants to know of."""
    return any(entered.known for entered in here.modules) or (
        not here.modules and any(x.thread == threading.get_ident() for x in _listeners)
    )


def tell(call: Call) -> GetWeights | None:
    """Tell every listener whose model made this call; return how to get its weights, if any."""
    weights = None
    if _is_part(call.query):
        tell_missed(call.door, PART)
        return None
    if call.crosses is None:
        call.crosses = here.crosses
    for listener, name, module in _concerned():
        weights = listener.take(".".join(filter(None, (name, call.part))), module, call)
        if not here.modules:
            listener.passed()
    return weights


PART = (
    "its query is one rank's part of a sequence (a DTensor), and a map of parts is none of the "
    "whole; see heedmap.parallel"
)


def _is_part(tensor: Tensor) -> bool:
    # Who has one has imported what it is of.
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(tensor, distributed.DTensor)


def attempt(door: str, make: Callable[[], Call]) -> Call | None:
    """Return the call as it was read; where that fails the model goes on, and it is noted."""
    try:
        return make()
    except BudgetError:
        raise
    # A model that is watched must run on, whatever it hands to its kernel and whatever our reading
    # of that stumbles over; the call is then listed as missed, with this error.
    except Exception as error:
        tell_missed(door, f"its arguments could not be read ({type(error).__name__}: {error})")
        return None


def tell_missed(door: str, reason: str) -> None:
    """Tell every listener whose model made a call that it could not be read."""
    for listener, name, _ in _concerned():
        listener.miss(name, door, reason)


def _concerned() -> list[tuple[Listener, str, nn.Module | None]]:
    found = []
    for listener in list(_listeners):
        for module, *_ in reversed(here.modules):
            if id(module) in listener.names:
                found.append((listener, listener.names[id(module)], module))
                break
        else:
            if not here.modules and threading.get_ident() == listener.thread:
                found.append((listener, "", None))
    return found


def listen(listener: Listener, patches: Callable[[], list[Undo]]) -> None:
    """Begin to tell this listener; the first one has the nets hung up."""
    global _generation
    with _lock:
        if not _listeners:
            _generation += 1
            hooks = [
                register_module_forward_pre_hook(_enter),
                # Called even when the module raises, so that the names stay in step.
                register_module_forward_hook(_leave, always_call=True),
            ]
            _undo.extend(hook.remove for hook in hooks)
            _undo.extend(patches())
        _listeners.append(listener)
    _refresh()
    if not here.sees:
        _see(True)


def leave(listener: Listener) -> None:
    """Stop telling this listener; the last one has the nets taken down."""
    with _lock:
        _listeners.remove(listener)
        if not _listeners:
            while _undo:
                _undo.pop()()
    if here.sees and not here.modules and not _is_listening():
        _see(False)


def _is_listening() -> bool:
    return any(listener.thread == threading.get_ident() for listener in _listeners)


def _refresh() -> None:
    """Forget what was going on in this thread when an earlier watch was broken off."""
    if here.generation != _generation:
        here.generation = _generation
        here.modules.clear()
        here.inside_call = 0
        here.sees = _net in _get_current_function_mode_stack()


def _see(on: bool) -> None:
    """Switch the mode on or off in this thread, where it lies on top."""
    if on:
        _net.__enter__()
        here.sees = True
    elif (stack := _get_current_function_mode_stack()) and stack[-1] is _net:
        _net.__exit__(None, None, None)
        here.sees = False


def _enter(module: nn.Module, _: Any) -> None:
    _refresh()
    known = False
    for listener in _listeners:
        if id(module) in listener.names:
            known = True
            listener.ran(listener.names[id(module)])
    watched = known or _is_listening() or any(entered.known for entered in here.modules)
    before = here.sees
    if (watched and not isinstance(module, _SHY)) != before:
        _see(not before)
    here.modules.append(Entered(module, known, here.sees != before))


def _leave(module: nn.Module, *_: Any) -> None:
    while here.modules:
        last = here.modules.pop()
        if last.switched:
            _see(not here.sees)
        if last.module is module:
            break
    if not here.modules:
        here.reader.forget()
        here.trail.forget()
        for listener in list(_listeners):
            if id(module) in listener.names:
                listener.passed()


def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    """Put a stand-in in the place of ``owner.name``; return what puts the original back."""
    original = vars(owner).get(name, None)
    inherited = name not in vars(owner)
    setattr(owner, name, make(getattr(owner, name)))

    def undo() -> None:
        if inherited:
            with suppress(AttributeError):
                delattr(owner, name)
        else:
            setattr(owner, name, original)

    return undo


def run_eagerly() -> list[Undo]:
    """Let compiled code run as it was written, for as long as it is watched."""
    if "torch._dynamo" in sys.modules:
        return _run_eagerly()
    # Loading the compiler takes a second, and most models never ask for it.
    return [patch(torch, "compile", _first_compile)]


def _first_compile(compile_: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_)
    def first(*args: Any, **kwargs: Any) -> Any:
        with _lock:
            if torch.compile is first:
                _undo.extend(_run_eagerly())
                torch.compile = compile_
        return compile_(*args, **kwargs)

    return first


def _run_eagerly() -> list[Undo]:
    from torch._dynamo.eval_frame import OptimizedModule

    stance = torch.compiler.set_stance("force_eager")
    return [
        lambda: stance.__exit__(None, None, None),
        # Its own call warns wherever there are hooks for all modules, which change nothing here.
        patch(OptimizedModule, "__call__", lambda _: nn.Module.__call__),
    ]
