"""PoplarExecutor: a module that runs on the device. trainingModel() and inferenceModel() make one.

The first call traces and compiles (see _compile.py). A later call checks the arguments, allocates the results and
gives addresses to the engine, which computes all of the model. What is left to PyTorch is around that: it copies
arguments that are not contiguous or that several replicas share, and where a call returns more than the engine does (anchored tensors in another mode than the model's, arguments that forward() writes
to) it picks micro-batches, and adds up those of OutputMode.Sum and of anchored gradient sums.
"""

from __future__ import annotations    # the class has a method called float

import contextlib
import copy
import datetime
import functools
import os
import time
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from . import _args, _compile, _core, _eager, _file, _groups, _legacy, _native, _profile, _state, _times, _torch_state, \
    _trace, _wrap, blocks, optim, profiling
from ._batching import Batching
from ._logging import logger
from .enums import ConnectionType, MeanReductionStrategy, OutputMode
from ._record import shortened
from .errors import check, createPoptorchError
from .options import Options


class _Hooks(dict):
    """RemovableHandle wants a dictionary that weak references can point at."""


_pre_hooks, _post_hooks = _Hooks(), _Hooks()


def registerPreCompileHook(hook: Callable) -> Any:
    """Call hook() before every trace; returns a handle with remove()."""
    return _register(_pre_hooks, hook)


def registerPostCompileHook(hook: Callable) -> Any:
    """Call hook() after every trace, also one that failed; returns a handle with remove()."""
    return _register(_post_hooks, hook)


def _register(where: Dict[int, Callable], hook: Callable) -> Any:
    if not callable(hook):
        raise RuntimeError(f"A hook must be callable, got {type(hook).__name__}")
    handle = torch.utils.hooks.RemovableHandle(where)
    where[handle.id] = hook
    return handle


def _noBackward(*args: Any, **kwargs: Any) -> None:
    raise createPoptorchError("backward() cannot be called explicitly on what a PopTorch model returns: the "
                              "backward pass is part of the compiled training step")


#: (least, most, mean) in seconds; in the class, `float` is a method
_Latency = Tuple[float, float, float]


class PoplarExecutor(_legacy.Names):
    """A module on the device. Call it like the module; unknown attributes are the module's."""

    def __init__(self, model: Any, options: Optional[Options], training: bool,
                 optimizer: Optional[torch.optim.Optimizer] = None) -> None:
        if isinstance(model, PoplarExecutor):
            model = model._user_model
        if options is None:
            options = Options()
        if not isinstance(options, Options):
            raise createPoptorchError(f"Invalid type {type(options).__name__} for options: expected "
                                      "poptorch.Options")
        self._engine: Any = None    # before anything can fail: __del__ looks at these
        self._program: Optional[_compile.Program] = None
        self._stale = False
        self._wrapped = False
        self._ours: Any = None    # who keeps the optimizer's state: one of our optimizers, or torch's in a TorchState
        self._told: Set[str] = set()    # what was said once
        self._replaced = False          # by another executor that trains the module
        if not isinstance(model, torch.nn.Module):
            model = blocks._CallableModule(model)
        if training and _wrap.isWrapped(model):    # a notebook's cell that is run again
            _wrap.linkOf(model).executor()._giveWay()    # type: ignore[union-attr]
        self._user_model = model
        self._training = training
        self._noted = False    # is what we do part of a profile?
        self._channel = profiling.Channel(f"poptorch.{'training' if training else 'inference'}Model")
        self._options = self._ownOptions(options)
        self._optimizer = optimizer
        self._description: Optional[Dict[str, Any]] = None
        if training:
            self._optimizer = optimizer or optim.SGD(model.parameters(), lr=0.01)
            self._description = self._describe()
            self._noteRunningMean()
            self._connect()
        self._model = copy.copy(model)
        self._weights_version = 0
        self._seen: Dict[int, Tuple[Any, int]] = {}    # trainers of our weights, and their versions
        self._rng: Optional[List[int]] = None
        self._state_stale = False    # of the optimizer
        self._saved_state: Dict[str, torch.Tensor] = {}
        self._call_times = (0.0, 0.0)    # beginning and end of the last call
        self._run_times: List[_Latency] = []
        self._cycles = 0
        self._anchored: Dict[str, torch.Tensor] = {}
        self._followed: Dict[str, List[torch.Tensor]] = {}    # states in the last call
        self._synthetic: Optional[List[torch.Tensor]] = None    # inputs in place of the host's
        self._warned_contiguous = False
        self._batching = Batching(self._options, training)
        self._groups: Dict[int, Tuple[torch.nn.Parameter, _groups.Grouping]] = {}    # of replicaGrouping(), by id
        if training:
            self._link = _wrap.Link(self)
            _wrap.wrap(model, self._link)
            self._wrapped = True

    def _ownOptions(self, options: Options) -> Options:
        options._freeze()
        own = options.clone()
        if own.defaultOutputMode():
            own.outputMode(OutputMode.Final if self._training else OutputMode.All)
        if not self._training and own.Training.gradient_accumulation != 1:
            raise createPoptorchError("You must set poptorch.Options().Training.gradientAccumulation to 1 "
                                      "(or leave it) for inference; use deviceIterations to run more "
                                      "micro-batches in a call")
        own.checkRanges()
        own._freeze()
        return own

    def _connect(self) -> None:
        """Let the optimizer ask for the state that the device has."""
        if not self._training:
            return
        this = weakref.ref(self)
        self._ours = self._optimizer
        if not isinstance(self._optimizer, optim.Optimizer):
            self._ours = _torch_state.TorchState(self._optimizer, self._description["kind"],    # type: ignore[index]
                                                 lambda: this()._parameterNames())    # type: ignore[union-attr]
        self._ours.setStateReader(lambda: this() and this()._stateForOptimizer())

    def _parameterNames(self) -> Dict[int, str]:
        return {id(t): name for name, t in _compile.namedStates(self._model)}

    def _disconnect(self) -> None:
        if self._ours is not None:
            self._ours.syncState()
            self._ours.setStateReader(None)
        self._ours = None

    def _stateForOptimizer(self) -> Optional[Tuple[Dict, Dict]]:
        """(ipu_state, ipu_param), or None when they have not changed since the last time."""
        if self._engine is None or not self._state_stale:
            return None
        self._state_stale = False
        program = self._compiled()
        state = {name: t for name, t in self._readState().items() if name not in program.own_buffers}
        if isinstance(self._ours, _torch_state.TorchState):
            return state, {}
        return _state.toPopTorch(state, program.trained, program.optimized)

    def _runningMean(self) -> bool:
        return self._description is not None and _compile.hasRunningMean(self._options, self._description)

    def _noteRunningMean(self) -> None:
        """Accumulators of half precision hold a running mean: our options tell."""
        if self._runningMean():
            training = self._options.Training
            training._unfreeze()
            training.setMeanAccumulationAndReplicationReductionStrategy(MeanReductionStrategy.Running)
            training._freeze()

    def _describe(self) -> Dict[str, Any]:
        return optim.describe(self._optimizer, self._options._Popart.lossScaling(), self._options.relax_optimizer_checks)

    # --- what it is ---

    @property
    def model(self) -> torch.nn.Module:
        """The user's module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The executor's own options, frozen."""
        return self._options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._user_model, name)
        ofModel = isinstance(value, types.MethodType) and value.__self__ is self._user_model
        return self._method(name, value) if ofModel else self._given(value)

    def _method(self, name: str, method: Any) -> Callable:
        """A method of the module: what returns the module returns this, and what computes with its weights is told of,
        for it is not compiled."""
        own = getattr(torch.nn.Module, name, None) is not method.__func__

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with _eager.Watch(self, f"{name}()") if own and name not in self._told else contextlib.nullcontext():
                out = method(*args, **kwargs)
            return self if out is self._user_model else out
        return call

    def tellOnce(self, what: str) -> None:
        """Log that something runs on the host, in PyTorch, and not on the device."""
        if what not in self._told and _trace.tracer() is None:
            self._told.add(what)
            logger.warning("%s of %s computes on the host, in PyTorch: only calls of what poptorch.%sModel() returned run on "
                           "the device", what, type(self._model).__name__, "training" if self._training else "inference")

    def _given(self, value: Any) -> Any:
        """Parameters come with replicaGrouping(); those that are trained have it already."""
        if self._training or not isinstance(value, torch.nn.Parameter):
            return value
        return _wrap.proxy(value, self)

    def get_parameter(self, target: str) -> torch.nn.Parameter:
        """The parameter of that name, as in "conv1.weight"."""
        return self._given(self._user_model.get_parameter(target))

    def _groupReplicas(self, t: torch.nn.Parameter, kind: Any, shards: int, mode: Any) -> None:
        """What replicaGrouping() of a parameter does."""
        if self._program is not None:
            raise createPoptorchError("replicaGrouping: the model has been compiled already")
        found = _groups.grouping(t, kind, shards, mode, self._batching.replicas)
        self._groups.pop(id(t), None)
        if found is not None:
            self._groups[id(t)] = (t, found)

    def __repr__(self) -> str:
        return blocks.module_repr(self._user_model)

    def train(self, mode: bool = True) -> "PoplarExecutor":
        """Set the training flag of the module; it matters until the model is compiled."""
        self._user_model.train(mode)
        return self

    def eval(self) -> "PoplarExecutor":
        """train(False)."""
        return self.train(False)

    # --- compiling ---

    def isCompiled(self) -> bool:
        """True between the first call, or compile(), and destroy()."""
        return self._program is not None

    def isAttachedToDevice(self) -> bool:
        """True while the compiled model is loaded."""
        return self._engine is not None

    @profiling.traced("compile")
    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for arguments like these, without running."""
        if self._program is not None:
            logger.warning("Call to compile() ignored: the model has been compiled already")
            return
        self._build(args, kwargs)

    def _build(self, args: Tuple, kwargs: Dict[str, Any], executable: Any = None) -> None:
        """Trace and compile, or with an executable, trace only."""
        self._options._Popart.checkKeys()
        self._checkOurs()
        with _native.nativeErrors(), self._channel.tracepoint("graphPreprocessing"):
            self._model.training = self._user_model.training    # the copy has a flag of its own
            function = isinstance(self._model, blocks._CallableModule)    # whose signature is its own
            forward = self._model._function if function else self._model.forward
            arguments = _args.Arguments(forward, args, kwargs)
            program, tracer = self._traced(arguments)
        if program.written:
            self._batching.wantAll()
        if self._training:
            self._description = self._describe()
            program.optimized = _compile.groupNames(self._description, self._model, program.trained)
        _compile.chooseReplicas(program, self._batching, self._options, self._description)
        if executable is None:
            with self._channel.tracepoint("modelCompilation"):
                _compile.compileProgram(program, tracer, self._batching, self._options, self._description)
        else:
            program.executable = executable
            _compile.checkExecutable(program, self._batching)
            _compile.observeLoaded(program, tracer, self._batching, self._options, self._description)
        _compile.checkAnchors(program)
        tracer.close()
        arguments.forget(bool(tracer.expected))
        self._program = program
        if self._options.connection_type != ConnectionType.Never:
            self._attach()

    def _traced(self, arguments: _args.Arguments) -> Tuple[_compile.Program, _trace.Tracer]:
        hooks = list(_pre_hooks.values()), list(_post_hooks.values())
        try:
            return _compile.trace(self._model, arguments, self._batching, self._options, self._training, hooks, self._groupsByName())
        except _core.Error:
            raise
        except Exception as e:
            raise shortened(e) from e.__cause__

    def _groupsByName(self) -> Dict[str, _groups.Grouping]:
        names = {id(t): name for name, t in _compile.namedStates(self._model)}
        return {names[i]: group for i, (_, group) in self._groups.items() if i in names}

    @profiling.traced("compileAndExport")
    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """compile(), then save()."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    @profiling.traced("saveExecutableToFile")
    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the compiled model to a file, with the module, options and optimizer unless export_model is
        False."""
        program = self._compiled()
        if self._engine is not None:
            self.copyWeightsToHostIfNeeded()
        if self._ours is not None:
            self._ours.syncState()
        exported = export_model and {"model": self._user_model, "optimizer": self._optimizer}
        _file.write(filename, program.executable, {
            "training": self._training, "options": self._options, "model": None, "optimizer": None,
            "groups": self._groupsByName(), "call": program.arguments.examples(), "rng": self.rng_state if save_rng_state else None,
            "state": self._saved_state if self._engine is None else self._readState(), **(exported or {})})

    @profiling.traced("loadExecutable")
    def loadExecutable(self, filename: str) -> None:
        """Use the compiled model of a file instead of compiling this one, which must be equal to it."""
        if self._program is not None:
            raise createPoptorchError("The model has been compiled already")
        try:
            record = _file.read(filename)
        except AssertionError as e:
            raise createPoptorchError(str(e)) from None
        self._takeFile(filename, record)

    def _takeFile(self, filename: str, record: Dict[str, Any]) -> None:
        if record["training"] != self._training:
            kind = "training" if record["training"] else "inference"
            raise createPoptorchError(f"{filename} has a model for {kind}")
        args, kwargs = _args.fromExamples(record["call"])
        executable = _file.executable(filename)
        self._rng = record["rng"]
        self._saved_state = record["state"]
        try:
            self._build(args, kwargs, executable)
        except AssertionError as e:
            raise createPoptorchError("The compiled model in the file was made from another model: "
                                      f"{e}") from None

    def _compiled(self) -> _compile.Program:
        if self._program is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self._program

    def compilationTime(self) -> datetime.timedelta:
        """How long compiling took."""
        program = self._compiled()
        if not self._options.show_compilation_progress_bar:
            raise createPoptorchError("The time of a compilation is measured by its progress bar, which "
                                      "showCompilationProgressBar(False) has switched off")
        return datetime.timedelta(seconds=program.seconds)

    def getTensorNames(self) -> List[str]:
        """Names of the compiled model's tensors, for Options.anchorTensor(): weights, buffers, optimizer state,
        inputs, the loss, and what every operation computes."""
        check(self._program is not None, "The model must be compiled before its tensors have names")
        program = self._compiled()
        return [*program.names, *_state.namesOf(program.executable.tensors(2), program.states, program.trained)]

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """What the last call left in the tensor that anchorTensor(short_name, ...) named."""
        check(short_name in self._options.anchored_tensors, f"No anchor is called {short_name}")
        check(short_name in self._anchored, f"{short_name} has no value before the model has run")
        return self._anchored[short_name]

    # --- device ---

    def _seed(self) -> int:
        seed = self._options.random_seed if self._options.exists("random_seed") else torch.initial_seed()
        return seed & (2**64 - 1)

    def _attach(self) -> None:
        program = self._compiled()
        with _native.nativeErrors():
            self._engine = _core.Engine(program.executable, self._seed(), 0, program.host, *self._processes(),
                                        self._devices())
        self._noted = _profile.start(program.executable, self._engine, self._options, self._training)
        self._prepareRun()
        self._upload()
        self._restoreState()
        if self._description is not None:
            self._setHypers()
        if self._rng is not None:
            self._engine.set_rng(*self._rng)
        with _native.nativeErrors():
            self._engine.copy()

    def _restoreState(self) -> None:
        """What the optimizer has been through: with us, or else with an executor that is gone."""
        program = self._compiled()
        if self._training and self._ours is None:
            self._connect()    # destroy() parted us
        if self._ours is not None and self._ours.ipu_state and not self._saved_state:
            self._writeState(self._ours.ipu_state, self._ours.ipu_param or {})
        for name, t in self._saved_state.items():
            # a buffer of each replica, unless the host has got another since
            if name not in program.own_buffers or torch.equal(t[0], _native.engineTensor(
                    _wrap.plain(program.states[name]))):
                self._engine.write(name, t.data_ptr(), t.numel() * t.element_size())
        self._saved_state = {}
        if isinstance(self._ours, optim.Optimizer) and self._ours.ipu_state is None:
            self._state_stale = True    # it can be read before the first run

    def _devices(self) -> Any:
        """Those of Options.useIpuId; None: any. A launcher's processes keep clear of each other by their numbers, and
        need not have the devices to themselves: whoever else computes on this machine does not stop them."""
        if not self._options.exists("ipu_id"):
            return None
        wait = -1.0 if os.environ.get("POPTORCH_WAIT_FOR_IPU", "0") == "1" else 0.0
        count = self._compiled().ipus * self._batching.engine_replicas
        try:
            return _core.attach(self._options.ipu_id, count, wait, "POPDIST_NUM_TOTAL_REPLICAS" not in os.environ)
        except _core.Error as e:
            kind, message, *rest = e.args
            raise _core.Error(kind, f"Failed to acquire {count} IPU(s): {message}", *rest) from None

    def _processes(self) -> Tuple[int, int]:
        """This one and how many train together; inference needs no others."""
        distributed = self._options.Distributed
        return (distributed.processId, distributed.numProcesses) if self._training else (0, 1)

    def _prepareRun(self) -> None:
        """What every call needs: the results' dtypes and shapes."""
        program = self._compiled()
        self._allocations = [(self._batching.engineShape(dims), dtype) for dtype, dims in program.outputs]
        plain = program.returned == list(range(len(program.outputs))) and not program.constants and \
            not program.narrow and not self._batching.all_results
        tree = program.results
        self._shape: Any = None
        if plain and type(tree) is _args._Node and tree.keys is None and tree.kind in (tuple, list) and \
                all(type(i) is _args._Leaf for i in tree.items):
            self._shape = tree.kind
        elif plain and type(tree) is _args._Leaf:
            self._shape = _first
        mode = self._options.synthetic_data
        self._synthetic = program.arguments.synthetic(mode, self._seed()) if mode else None
        leaves = program.arguments.leaves
        self._direct = self._batching.groups == self._batching.replicas and \
            all(leaf.dtype != torch.int16 and not leaf.dtype.is_complex for leaf in leaves)

    @_native.nativeErrors()
    def _upload(self) -> None:
        """Weights and buffers to the device."""
        for name, t in self._compiled().states.items():
            self._write(name, t)
        self._stale = False
        links = _wrap.links(self._compiled().states.values())
        self._seen = {k: (link, link.executor()._weights_version) for k, link in links.items()
                      if link.executor() is not self}

    def _write(self, name: str, t: torch.Tensor) -> None:
        """A weight or buffer of the host to the device; a buffer that each replica has to all of them."""
        data = _native.engineTensor(_wrap.plain(t))
        if name in self._compiled().own_buffers:
            data = data.expand(self._batching.replicas, *data.shape).contiguous()
        self._engine.write(name, data.data_ptr(), data.numel() * data.element_size())

    def attachToDevice(self) -> None:
        """Load the compiled model again."""
        self._compiled()
        check(self._options.connection_type != ConnectionType.Never,
              "A model with connection type Never cannot be attached to a device")
        if self._engine is not None:
            raise createPoptorchError("Device is already attached")
        self._attach()

    def detachFromDevice(self) -> None:
        """Fetch weights and state, and free the memory of the compiled model."""
        self._compiled()
        if self._engine is None:
            raise createPoptorchError("Device is not attached")
        self.copyWeightsToHostIfNeeded()
        if self._ours is not None:
            self._ours.syncState()
        self._saved_state = self._readState()
        self._rng = self._engine.rng()
        self._run_times, self._cycles = self._timesAndCycles()
        self._engine = None

    def _readState(self) -> Dict[str, torch.Tensor]:
        """The optimizer's state, the hyper-parameters and what each replica has of its own buffers."""
        program = self._compiled()
        out = {}
        for name, dtype, dims, size in program.executable.tensors(2):
            if name not in program.states or name in program.own_buffers:
                t = torch.empty(dims, dtype=_native.TORCH_DTYPES[dtype])
                self._engine.read(name, t.data_ptr(), size)
                out[name] = t
        return out

    @profiling.traced("destroy")
    def destroy(self) -> None:
        """Fetch weights, free everything, and make the user's module an ordinary one again."""
        if self._program is None:
            return
        if self._engine is not None:
            self.copyWeightsToHostIfNeeded()
            self._disconnect()
        self._engine = self._program = None
        self._saved_state = {}
        if self._wrapped:
            _wrap.unwrap(self._user_model)
            self._wrapped = False

    def _giveWay(self) -> None:
        """To another trainingModel() of the same module."""
        logger.warning("%s was wrapped in poptorch.trainingModel() before: that executor is destroyed", type(self._user_model).__name__)
        self.destroy()
        if self._wrapped:    # it was not compiled yet
            self._disconnect()
            _wrap.unwrap(self._user_model)
            self._wrapped = False
        self._replaced = True

    def __del__(self) -> None:
        # What was trained is not lost with the executor: neither weights nor the optimizer's state. Whether weak
        # references to us are still alive depends on who collects us, so nothing here goes through one.
        try:
            if self._engine is None:
                return
            if self._stale:
                self.copyWeightsToHost()
            if self._ours is not None:
                self._ours.takeState(self._stateForOptimizer())
        except Exception:    # the interpreter may be half gone
            pass

    # --- weights ---

    @profiling.traced("copyWeightsToHost")
    @_native.nativeErrors()
    def copyWeightsToHost(self) -> None:
        """Fetch the weights and buffers that runs changed."""
        program = self._compiled()
        if self._engine is None:
            raise createPoptorchError("Device is not attached")
        self._stale = False
        for name in program.changed:
            self._fetch(name, program.states[name])
        self._weights_version += 1

    def _fetch(self, name: str, host: torch.Tensor) -> None:
        """A weight or buffer of the device to the host; a tensor that has too few rows for what comes grows."""
        program = self._compiled()
        t = _wrap.plain(host).detach()
        t = torch.view_as_real(t) if t.is_complex() else t
        shape = program.engineShape(name, t, self._batching.replicas)
        direct = t.is_contiguous() and t.dtype != torch.int16 and shape == t.shape
        data = t if direct else _native.engineTensor(t).new_empty(shape)
        self._engine.read(name, data.data_ptr(), data.numel() * data.element_size())
        if name in program.own_buffers:
            data = data[0]
        if data.shape != t.shape:
            with torch._C.DisableTorchFunction():
                host.data = _asReturned(data, host.dtype)
        elif data is not t:
            t.copy_(data)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch them if a run changed them since the last time; True if so."""
        if not self._stale:
            return False
        self.copyWeightsToHost()
        return True

    @profiling.traced("copyWeightsToDevice")
    def copyWeightsToDevice(self) -> None:
        """Upload the module's weights and buffers, over what the device has."""
        self._compiled()
        if self._engine is None:
            raise createPoptorchError("Device is not attached")
        if self._ours is not None:
            self._ours.syncState()
        self._stale = False
        self._upload()

    def copyNamedBuffersToDevice(self) -> None:
        """Upload the buffers of Options.updatableNamedBuffers."""
        program = self._compiled()
        if not self._options.updatable_named_buffers:
            raise createPoptorchError("copyNamedBuffersToDevice() needs Options.updatableNamedBuffers([...])")
        if self._engine is None:
            raise createPoptorchError("Device is not attached")
        for name in set(self._options.updatable_named_buffers) & program.states.keys():    # those in use
            self._write(name, program.states[name])

    def load_state_dict(self, state_dict: Dict[str, torch.Tensor], strict: bool = True) -> Any:
        """Load into the module, and upload if attached."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._engine is not None:
            self._stale = False
            self._upload()
        return result

    def _followTrainers(self) -> None:
        """Weights that another executor trains: fetch and upload them when they changed."""
        changed = False
        for link, version in self._seen.values():
            trainer = link.executor()
            if trainer is None:
                continue
            if trainer._stale:
                trainer.copyWeightsToHost()
            changed = changed or trainer._weights_version != version
        if changed:
            self._upload()

    # --- optimizer ---

    @profiling.traced("setOptimizer")
    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take over the hyper-parameters of an optimizer, the same or another one."""
        old, self._optimizer = (self._description, self._optimizer), optimizer
        try:
            new = self._describe()
            if self._program is not None and old[0] is not None:
                optim.checkUpdate(old[0], new)
        except BaseException:
            self._optimizer = old[1]
            raise
        self._description = new
        if optimizer is not old[1]:
            self._disconnect()
            self._connect()
        if self._engine is not None:
            self._setHypers()
        if old[0] is not None and new["automatic"] is not None and old[0]["loss_scaling"] != new["loss_scaling"]:
            self._restartScaling(new["loss_scaling"])

    @_native.nativeErrors()
    def _writeState(self, state: Dict[str, torch.Tensor], param: Dict[str, torch.Tensor]) -> None:
        """The optimizer's state, under its names in a state dict, to the device."""
        program = self._compiled()
        automatic = self._description is not None and self._description["automatic"] is not None
        tensors = program.executable.tensors(2)
        if isinstance(self._ours, _torch_state.TorchState):
            found = _torch_state.toEngine(state, {t[0]: (_native.TORCH_DTYPES[t[1]], t[2]) for t in tensors
                                                  if t[0] not in program.states})
        else:
            found = _state.toEngine(state, param, tensors, program.trained, automatic)
        for name, t in found.items():
            self._engine.write(name, t.data_ptr(), t.numel() * t.element_size())

    def _restartScaling(self, scale: float) -> None:
        """An automatic loss scale goes on from here, now or when the model is attached."""
        if self._engine is None:
            self._saved_state["loss_scaling"] = torch.tensor(scale)
        else:
            self._engine.set("loss_scaling", scale)
            self._state_stale = True

    def _setHypers(self) -> None:
        with _native.nativeErrors():
            for name, value in _compile.hyperValues(self._description):
                self._engine.set(name, value)

    # --- random numbers ---

    @property
    def rng_state(self) -> List[int]:
        """[seed, how many micro-batches have drawn from it]"""
        self._compiled()
        return list(self._rng or [0, 0]) if self._engine is None else self._engine.rng()

    @rng_state.setter
    def rng_state(self, state: List[int]) -> None:
        self._compiled()
        if len(state) != 2:
            raise createPoptorchError(f"The state of the random generator is [seed, step], got {state!r}")
        self._rng = [int(s) & (2**64 - 1) for s in state]
        if self._engine is not None:
            self._engine.set_rng(*self._rng)

    # --- running ---

    @profiling.traced("modelExecution")
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        if self._engine is None:
            self._makeReady(args, kwargs)
        ready = time.perf_counter() if self._noted else 0.0
        program = self._program
        if self._seen:
            self._followTrainers()
        if self._ours is not None:
            loaded = self._ours.takeLoadedState()
            if loaded is not None:
                self.copyWeightsToHostIfNeeded()
                self._writeState(*loaded)
        tensors = program.arguments.match(args, kwargs)    # type: ignore[union-attr]
        if self._synthetic is not None:
            tensors = self._synthetic
        given = []
        fed = program.fed    # type: ignore[union-attr]
        for t in tensors if fed is None else [tensors[i] for i in fed]:
            if not t.is_contiguous():
                t = self._contiguous(t)
            given.append(t if self._direct else _native.engineTensor(self._batching.forReplicas(t)))
        outs = [torch.empty(shape, dtype=dtype) for shape, dtype in self._allocations]
        addresses: List[Optional[int]] = [o.data_ptr() for o in outs]
        if self._synthetic is not None:    # nothing leaves the device
            outs, addresses = [o.zero_() for o in outs], [None] * len(outs)
        if program.has_loss:    # type: ignore[union-attr]
            addresses.append(None)
        if self._noted:
            self._engine.note("copy_in", "inputs", ready, time.perf_counter())
        try:
            if self._batching.runs == 1:
                self._engine.run([t.data_ptr() for t in given], addresses)
            else:
                self._runEach(given, outs, addresses)
        except _core.Error as e:
            raise _native.coreError(e) from None
        ran = time.perf_counter() if self._noted else 0.0
        self._stale = self._state_stale = self._training
        if program.written or program.anchors:    # type: ignore[union-attr]
            self._afterRun(tensors, outs)
        for o in outs:
            o.backward = _noBackward    # type: ignore[assignment]
        result = self._shape(outs) if self._shape is not None else self._results(outs)
        self._call_times = started, time.perf_counter()
        if self._noted:
            self._engine.note("copy_out", "results", ran, self._call_times[1])
        return result

    def _runEach(self, given: List[torch.Tensor], outs: List[torch.Tensor], addresses: List[Optional[int]]) -> None:
        """One iteration after the other, and the values of states that anchors follow in between."""
        runs = self._batching.runs
        steps = [t.numel() * t.element_size() // runs for t in (*given, *outs)]
        starts = [*(t.data_ptr() for t in given), *addresses]
        followed = {a.state: [self._stateNamed(a.state)] for a in self._compiled().anchors.values() if a.followed}
        self._run_times, self._cycles = [], 0
        for d in range(runs):
            now = [None if at is None else at + d * step for at, step in zip(starts, [*steps, 0])]
            self._engine.run(now[:len(given)], now[len(given):])
            self._run_times += self._engine.times()
            self._cycles += self._engine.cycles()
            for name, values in followed.items():
                values.append(self._stateNamed(name))
        self._followed = followed

    def _makeReady(self, args: Tuple, kwargs: Dict[str, Any]) -> None:
        check(self._options.connection_type != ConnectionType.Never,
              "Trying to run a model on an offline device (ConnectionType.Never)")
        self._checkOurs()
        if self._program is None:
            self._build(args, kwargs)
        else:
            self._attach()

    def _checkOurs(self) -> None:
        if self._replaced:
            raise createPoptorchError(f"{type(self._user_model).__name__} was wrapped in poptorch.trainingModel() again: use what that "
                                      "call returned")

    def _contiguous(self, t: torch.Tensor) -> torch.Tensor:
        if not self._warned_contiguous:
            logger.warning("An input is not contiguous: it is copied in every call")
            self._warned_contiguous = True
        return t.contiguous()

    def _results(self, outs: List[torch.Tensor]) -> Any:
        """The structure that forward returned."""
        program = self._compiled()
        if self._batching.all_results:
            outs = [self._batching.pick(o, dims) for o, (_, dims) in zip(outs, program.outputs)]
        leaves = [program.constants[i] if k < 0 else _asReturned(outs[k], program.narrow.get(i, outs[k].dtype))
                  for i, k in enumerate(program.returned)]
        for o in leaves:
            o.backward = _noBackward    # type: ignore[assignment]
        return _args.rebuild(program.results, leaves)

    def _afterRun(self, tensors: List[torch.Tensor], outs: List[torch.Tensor]) -> None:
        """Inputs that forward writes to, and anchors."""
        program = self._compiled()
        for i, k in program.written if self._synthetic is None else ():
            mine = _native.pairsAsComplex(outs[k]) if tensors[i].is_complex() else outs[k]
            tensors[i].detach().copy_(self._batching.ofGroups(mine).view(tensors[i].shape))
        taken = {s: s.take() for s in {a.series for a in program.anchors.values() if a.series is not None}}
        for name, anchor in program.anchors.items():
            how = anchor.mode, anchor.period
            if anchor.series is not None:
                gradients, dims = taken[anchor.series], anchor.series.spec[1]
                self._anchored[name] = self._batching.pickSums(gradients, dims, *how, self._runningMean()) \
                    if anchor.summed else self._batching.pick(gradients, dims, *how)
            elif anchor.output < 0:
                values = self._followed[anchor.state] if anchor.followed else [self._stateNamed(anchor.state)]
                self._anchored[name] = self._batching.pickState(values, *how)
            elif self._batching.all_results:
                self._anchored[name] = self._batching.pick(outs[anchor.output], program.outputs[anchor.output][1], *how)
            else:
                self._anchored[name] = outs[anchor.output]

    def _stateNamed(self, name: str) -> torch.Tensor:
        """A weight, buffer or state of the optimizer as it is on the device."""
        program = self._compiled()
        for found, dtype, dims, size in program.executable.tensors(2):
            if name in (found, *_state.namesOf([(found,)], (), program.trained)):
                t = torch.empty(dims, dtype=_native.TORCH_DTYPES[dtype])
                self._engine.read(found, t.data_ptr(), size)
                return t
        raise createPoptorchError(f"The compiled model has no tensor {name}")

    # --- times ---

    def getPerfCounters(self) -> _times.Counters:
        """When the last call's inputs were offered and taken and its outputs ready and returned, in seconds:
        value[i][j] for tensor i and micro-batch j."""
        if self._program is None:
            return {k: [[]] for k in _times.NAMES}
        times = self._timesAndCycles()[0]
        return _times.counters(*self._call_times, self._batching.times(times), self._batching.microBatches(),
                               len(self._program.arguments.leaves), len(set(self._program.returned) - {-1}))

    def _timesAndCycles(self) -> Tuple[List[_Latency], int]:
        if self._engine is None or self._batching.runs > 1:
            return self._run_times, self._cycles
        return self._engine.times(), self._engine.cycles()

    def _latency(self, first: str, last: str) -> _Latency:
        if self._synthetic is not None:
            return 0.0, 0.0, 0.0
        return _times.latency(self.getPerfCounters(), first, last)

    def getHostIpuLatency(self) -> _Latency:
        """(least, most, mean) seconds from offering inputs until they are taken."""
        return self._latency("input", "input_complete")

    def getComputeLatency(self) -> _Latency:
        """(least, most, mean) seconds from taking inputs until outputs are ready."""
        return self._latency("input_complete", "output")

    def getIpuHostLatency(self) -> _Latency:
        """(least, most, mean) seconds from outputs that are ready until they are returned."""
        return self._latency("output", "output_complete")

    def getLatency(self) -> _Latency:
        """(least, most, mean) seconds from offering inputs until outputs are returned."""
        return self._latency("input", "output_complete")

    def cycleCount(self) -> int:
        """Cycles of the processor's counter that the last run took; with useIpuModel those of the modelled IPU in a call."""
        self._compiled()
        if not self._options._Popart.options.get("instrumentWithHardwareCycleCounter"):
            raise createPoptorchError("Cycles are not counted: use Options.logCycleCount(True)")
        if self._options.uses_ipu_model:
            return self._modelledCycles()
        cycles = self._timesAndCycles()[1]
        if not cycles:
            raise createPoptorchError("There are no cycles before the model has run")
        return cycles

    def _modelledCycles(self) -> int:
        if not self._program.cycles:
            raise createPoptorchError("The cycles of a simulated device are known when the model is compiled, not when it is loaded")
        return round(self._program.cycles[1])


def _first(outs: List[torch.Tensor]) -> torch.Tensor:
    return outs[0]


def _asReturned(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What the engine has, as a type that it lacks."""
    return _native.pairsAsComplex(t) if dtype.is_complex else t.to(dtype)


def trainingModel(model: Any, options: Optional[Options] = None,
                  optimizer: Optional[torch.optim.Optimizer] = None) -> PoplarExecutor:
    """Train a module on the device: each call is forward, backward and update.

    The module's forward must compute its loss. Without an optimizer it is SGD with a learning rate of 0.01.
    Nothing is compiled before the first call.
    """
    return PoplarExecutor(model, options, True, optimizer)


def inferenceModel(model: Any, options: Optional[Options] = None) -> PoplarExecutor:
    """Run a module on the device, without gradients."""
    return PoplarExecutor(model, options, False)


def load(filename: str, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """The executor that save(filename) wrote: module, options, optimizer and compiled program.

    The file holds a program and pickled objects: load files from those whose programs you would run.
    `edit_opts_fn` may change the options first.
    """
    record = _file.read(filename)
    check(record.get("model") is not None,
          f"{filename} was saved with export_model=False; use loadExecutable() on a wrapped model instead")
    options = record["options"].clone().forThisMachine()
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = PoplarExecutor(record["model"], options, record["training"], record["optimizer"])
    states = dict(_compile.namedStates(executor._model))
    executor._groups = {id(states[name]): (states[name], group) for name, group in record["groups"].items()}
    executor._takeFile(filename, record)
    return executor
