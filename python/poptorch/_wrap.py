"""What wrapping for training does to a user's module and its tensors.

Trained weights stay on the device until somebody looks. To notice that, the module, its parameters and its
buffers change class while an executor trains them: the new classes are the old ones plus a look at the
executor before anything is read. unwrap() takes it all back.
"""

import copyreg
import weakref
from typing import Any, Dict, Iterator, Optional, Tuple

import torch

from .enums import CommGroupType, VariableRetrievalMode
from .errors import createPoptorchError

_LINK = "_poptorch_link"


class Link:
    """From a wrapped tensor or module to the executor that trains it, which may be gone."""

    def __init__(self, executor: Any) -> None:
        self._executor = weakref.ref(executor)

    def executor(self) -> Any:
        """The executor, or None."""
        return self._executor()

    def sync(self) -> None:
        """Fetch the weights if they changed on the device."""
        executor = self._executor()
        if executor is not None and executor._stale:
            executor.copyWeightsToHost()

    def __reduce__(self) -> Tuple:
        return (_noLink, ())

    def __deepcopy__(self, memo: Dict) -> None:
        return None


def _noLink() -> None:
    return None


def linkOf(t: Any) -> Optional[Link]:
    """The link of a tensor or module, or None."""
    return object.__getattribute__(t, "__dict__").get(_LINK)


def _syncAll(values: Any) -> None:
    for v in values:
        if isinstance(v, (PoptorchParameter, PoptorchBuffer)):
            link = linkOf(v)
            if link is not None:
                link.sync()
        elif isinstance(v, (list, tuple)):
            _syncAll(v)


class _Watched:
    """Fetches trained values before anything is read."""

    def __getattribute__(self, name: str) -> Any:
        link = object.__getattribute__(self, "__dict__").get(_LINK)
        if link is not None:
            link.sync()
        return super().__getattribute__(name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Tuple = (), kwargs: Optional[Dict] = None) -> Any:
        kwargs = kwargs or {}
        _syncAll(args)
        _syncAll(kwargs.values())
        with torch._C.DisableTorchFunction():
            return func(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Dict) -> Any:
        if id(self) not in memo:
            copied = plain(self).detach().clone()
            trained = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if trained else copied
        return memo[id(self)]


class PoptorchParameter(_Watched, torch.nn.Parameter):
    """A parameter that is being trained on the device."""

    def replicaGrouping(self, comm_group_type: CommGroupType, shards: int,
                        variable_retrieval_mode: VariableRetrievalMode) -> None:
        """Give every group of `shards` replicas a value of its own; call it before the model is compiled."""
        link = linkOf(self)
        executor = link.executor() if link is not None else None
        if executor is None:
            raise createPoptorchError("replicaGrouping: nobody trains this parameter any more")
        executor._groupReplicas(self, comm_group_type, shards, variable_retrieval_mode)


class ParameterProxy(torch.nn.Parameter):
    """A parameter as an executor for inference gives it away: in the same memory."""

    _original: torch.nn.Parameter
    _executor: Any

    def replicaGrouping(self, comm_group_type: CommGroupType, shards: int,
                        variable_retrieval_mode: VariableRetrievalMode) -> None:
        """Give every group of `shards` replicas a value of its own; call it before the model is compiled."""
        self._executor._groupReplicas(self._original, comm_group_type, shards, variable_retrieval_mode)


def proxy(t: torch.nn.Parameter, executor: Any) -> ParameterProxy:
    """t with replicaGrouping() for an executor that has not changed its class."""
    made = ParameterProxy(plain(t).detach(), t.requires_grad)
    made._original, made._executor = t, executor
    return made


class PoptorchBuffer(_Watched, torch.Tensor):
    """A buffer of a module that is being trained on the device."""


def plain(t: torch.Tensor) -> torch.Tensor:
    """The same tensor as a torch.Tensor or Parameter that nobody watches."""
    with torch._C.DisableTorchFunction():
        data = t.detach()
    return torch.nn.Parameter(data, t.requires_grad) if isinstance(t, torch.nn.Parameter) else data


def isComplex(t: torch.Tensor) -> bool:
    """Asked without fetching it."""
    with torch._C.DisableTorchFunction():
        return torch.Tensor.is_complex(t)


def _tensors(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    seen = set()
    for module in model.modules():
        members = module.__dict__
        for t in (*members["_parameters"].values(), *members["_buffers"].values()):
            if t is not None and id(t) not in seen:
                seen.add(id(t))
                yield t


def _watch(t: torch.Tensor, link: Link) -> None:
    if isinstance(t, torch.nn.Parameter):
        t.__class__ = PoptorchParameter
    else:
        if type(t) not in (torch.Tensor, PoptorchBuffer):
            raise createPoptorchError(f"A buffer of type {type(t).__name__} cannot be wrapped: buffers must "
                                      "be plain tensors")
        t.__class__ = PoptorchBuffer
    object.__getattribute__(t, "__dict__")[_LINK] = link


def rewatch(t: torch.Tensor) -> None:
    """Give a tensor that has its link the class that it should have."""
    link = linkOf(t)
    if link is not None:
        _watch(t, link)


def _unwatch(t: torch.Tensor) -> None:
    object.__getattribute__(t, "__dict__").pop(_LINK, None)
    if type(t) is PoptorchParameter:
        t.__class__ = torch.nn.Parameter
    elif type(t) is PoptorchBuffer:
        t.__class__ = torch.Tensor


def _moduleClass(original: type) -> type:
    """The subclass of a user's class that a wrapped module gets."""

    class Wrapped(original):    # type: ignore[valid-type, misc]
        def __getattribute__(self, name: str) -> Any:
            if name in ("_parameters", "_buffers", "forward"):
                link = object.__getattribute__(self, "__dict__").get(_LINK)
                if link is not None:
                    link.sync()
            return super().__getattribute__(name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            link = object.__getattribute__(self, "__dict__").get(_LINK)
            executor = link.executor() if link is not None else None
            if executor is not None:
                executor.tellOnce("A direct call")
            return super().__call__(*args, **kwargs)

        def copyWeightsToHostIfNeeded(self) -> bool:
            """Fetch the trained weights if they changed; True if they did."""
            link = linkOf(self)
            executor = link.executor() if link is not None else None
            return executor.copyWeightsToHostIfNeeded() if executor is not None else False

        def destroy(self) -> None:
            """Free the device, and make this an ordinary module again."""
            link = linkOf(self)
            executor = link.executor() if link is not None else None
            if executor is not None:
                executor.destroy()

        def __copy__(self) -> Any:
            other = type(self).__new__(type(self))
            other.__dict__.update(self.__dict__)
            return other

        def __reduce_ex__(self, protocol: Any) -> Any:
            self.copyWeightsToHostIfNeeded()
            unwrapped = original.__new__(original)
            unwrapped.__dict__.update({k: v for k, v in self.__dict__.items() if k != _LINK})
            reduced = unwrapped.__reduce_ex__(protocol)
            if reduced[0] is copyreg.__newobj__:    # insists on the class of the object being pickled
                reduced = (copyreg._reconstructor, (original, object, None), *reduced[2:])
            return reduced

    Wrapped.__name__ = f"Poptorch{original.__name__}"
    Wrapped.__qualname__ = Wrapped.__name__
    Wrapped.__module__ = original.__module__
    Wrapped.__doc__ = original.__doc__
    return Wrapped


def isWrapped(model: torch.nn.Module) -> bool:
    """Does a living executor train this module?"""
    link = linkOf(model)
    return link is not None and link.executor() is not None


def wrap(model: torch.nn.Module, link: Link) -> None:
    """Watch a module and its tensors."""
    original = type(model)
    if linkOf(model) is not None:    # of an executor that is gone
        original = original.__mro__[1]
    for t in _tensors(model):
        _watch(t, link)
    model.__class__ = _moduleClass(original)
    model.__dict__[_LINK] = link


def unwrap(model: torch.nn.Module) -> None:
    """Make it an ordinary module again."""
    for t in _tensors(model):
        _unwatch(t)
    if model.__dict__.pop(_LINK, None) is not None:
        model.__class__ = type(model).__mro__[1]


class unwatched:
    """A context in which a module's tensors have their own classes, for the time of a trace."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._links = [(t, linkOf(t)) for t in _tensors(model) if linkOf(t) is not None]

    def __enter__(self) -> None:
        for t, link in self._links:
            link.sync()    # type: ignore[union-attr]
        for t, _ in self._links:
            _unwatch(t)

    def __exit__(self, *exc: Any) -> None:
        for t, link in self._links:
            _watch(t, link)    # type: ignore[arg-type]


def links(tensors: Any) -> Dict[int, Link]:
    """The executors that train any of these tensors, by id."""
    found = {}
    for t in tensors:
        link = linkOf(t)
        if link is not None and link.executor() is not None:
            found[id(link)] = link
    return found
