"""What users of poptorch can see: every name is there, typed, and explained."""

import inspect
import re
import types
import typing
from pathlib import Path

import pytest

import poptorch
import poptorch.testing

NAMES = """
    trainingModel inferenceModel PoplarExecutor load registerPreCompileHook registerPostCompileHook
    Options TensorLocationSettings Attribute ConfigFileError
    DataLoader AsynchronousDataAccessor ICustomArgParser registerCustomArgParser
    Block BeginBlock BlockFunction removeBlocks Stage Phase PipelinedExecution ShardedExecution
    ParallelPhasedExecution SerialPhasedExecution AutoStage Liveness
    identity_loss ipu_print_tensor nop for_loop cond CPU custom_op MultiConv NameScope serializedMatMul
    set_available_memory set_overlap_for_input set_overlap_for_output recomputationCheckpoint dynamic_slice
    dynamic_update ctc_beam_search_decoder fps nearest
    isRunningOnIpu ipuHardwareIsAvailable ipuHardwareVersion setLogLevel module_repr print
    OutputMode ConnectionType ReductionType MeanReductionStrategy SyncPattern DataLoaderMode SharingStrategy
    HalfFloatCastingBehavior MultiConvPlanType CommGroupType VariableRetrievalMode MatMulSerializationMode
    OverlapMode
    Error RecoverableError UnrecoverableError createPoptorchError
    optim profiling options enums testing autocast autocasting
""".split()

MODULES = [poptorch, poptorch.optim, poptorch.options, poptorch.enums, poptorch.profiling, poptorch.autocasting,
           poptorch.testing]


def ours(value):
    return getattr(value, "__module__", "").split(".")[0] == "poptorch"


def public(names):
    return [n for n in names if not n.startswith("_")]


def things():
    """Every public class and function, by the name a user writes; the groups of Options among them."""
    found = {f"Options.{n}": type(getattr(poptorch.Options(), n))
             for n in ("Training", "Precision", "Distributed", "TensorLocations", "Jit", "_Popart")}
    for module in MODULES:
        for name in public(getattr(module, "__all__", vars(module))):
            value = getattr(module, name)
            if ours(value) and not isinstance(value, types.ModuleType):
                found.setdefault(f"{module.__name__}.{name}", value)
    return found


def methods(cls):
    """The public methods and properties that are written in this package, with those it inherits."""
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "__func__", value)    # static and class methods
        if inspect.isfunction(value) and ours(value) and (name in ("__init__", "__call__") or public([name])):
            yield name, value


def callables(value):
    if inspect.isclass(value):
        yield from methods(value)
    else:
        yield "", value


THINGS = things()


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_there(name):
    assert hasattr(poptorch, name)


def test_the_walk_sees_the_surface():
    walked = {n.rsplit(".", 1)[1] for n in THINGS}
    modules = {m.__name__.split(".")[-1] for m in MODULES}
    assert sorted(set(NAMES) - walked - modules) == []
    assert "setEngineOptions" in dict(methods(THINGS["Options._Popart"]))
    assert len(list(methods(poptorch.PoplarExecutor))) > 30


@pytest.mark.parametrize("name", THINGS)
def test_has_a_docstring(name):
    value = THINGS[name]
    assert value.__doc__ and value.__doc__.strip()
    if inspect.isclass(value):
        assert value.__doc__ != getattr(value.__base__, "__doc__", None), "inherited from its base"
    bare = [n for n, f in callables(value) if not n.startswith("__") and not inspect.getdoc(getattr(value, n, f))]
    assert bare == []


@pytest.mark.parametrize("name", THINGS)
def test_is_typed(name):
    for method, function in callables(THINGS[name]):
        where = f"{name}.{method}" if method else name
        hints = typing.get_type_hints(function)    # also fails on a name that does not exist
        parameters = list(inspect.signature(function).parameters)
        if method and parameters[:1] == ["self"]:
            parameters = parameters[1:]
        assert [p for p in parameters if p not in hints] == [], f"{where}: parameters without a type"
        assert "return" in hints, f"{where}: no return type"


def test_type_checkers_may_read_them():
    assert (Path(poptorch.__file__).parent / "py.typed").exists()


def test_the_version_is_the_build_s(root):
    assert poptorch.__version__ == re.search(r'TS_VERSION +"(.+?)"', (root / "include/tessera.h").read_text())[1]
