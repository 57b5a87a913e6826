"""The optimizer's state under the names that PopTorch gives it.

The engine calls the first moment of fc.weight `fc.weight.exp_avg`; in a state dict it is `Accl1___fc.weight`.
The step counter is one number in the engine and one for each parameter in a state dict.
"""

from typing import Dict, Iterable, List, Tuple

import torch

from ._logging import logger

_PREFIXES = {"accum": "Accum___", "momentum": "Accl1___", "exp_avg": "Accl1___", "momentum_buffer": "Accl1___",
             "exp_avg_sq": "Accl2___", "square_avg": "Accl2___", "grad_avg": "Accl3___",
             # of torch's optimizers that PopTorch has not
             "max_exp_avg_sq": "Accl3___", "exp_inf": "Accl2___", "sum": "Accl2___", "acc_delta": "Accl3___",
             "prev": "Accl1___", "step_size": "Accl2___", "ax": "Accl1___", "row_var": "Accl2___",
             "col_var": "Accl3___", "variance": "Accl2___"}
_HYPERS = {"lr": "learningRate", "momentum": "momentum", "dampening": "dampening", "weight_decay": "weightDecay",
           "beta1": "beta1", "beta2": "beta2", "eps": "eps", "alpha": "alpha",
           "max_weight_norm": "maxWeightNorm", "velocity_scaling": "velocityScaling"}
_STEP, _SCALING, _COUNT = "step", "loss_scaling", "micro_batches"
_SCALING_STATE = {"loss_scaling.updates": "lossScalingUpdates", "loss_scaling.above": "lossScalingAbove"}


def _names(name: str, trained: Iterable[str]) -> Tuple[bool, Tuple[str, ...]]:
    """(is it state, and not a hyper-parameter?, its names in a state dict)"""
    if name == _STEP:
        return True, tuple(f"Step___{p}" for p in trained)
    if name == _SCALING:
        return False, ("lossScaling_FLOAT",)
    if name in _SCALING_STATE:
        return True, (_SCALING_STATE[name],)
    if name.partition(".")[0] == _COUNT:    # 0 between calls
        return False, ()
    parameter, _, kind = name.rpartition(".")
    if kind in _PREFIXES and parameter:
        return True, (_PREFIXES[kind] + parameter,)
    hyper, _, group = name.partition(".")
    return False, (f"{_HYPERS.get(hyper, hyper)}___{f'group{group}' if group else 'default'}",)


def toPopTorch(engine: Dict[str, torch.Tensor], trained: Iterable[str],
               groups: List[List[str]]) -> Tuple[Dict[str, torch.Tensor], Dict[str, torch.Tensor]]:
    """(ipu_state, ipu_param) of the engine's state. A group's hyper-parameter is there for each of its parameters."""
    state: Dict[str, torch.Tensor] = {}
    param: Dict[str, torch.Tensor] = {}
    for name, t in engine.items():
        is_state, names = _names(name, trained)
        hyper, _, group = name.partition(".")
        if names and not is_state and group:
            names = tuple(f"{_HYPERS.get(hyper, hyper)}___specific___{p}" for p in groups[int(group) - 1])
        (state if is_state else param).update({n: t for n in names})
    return state, param


def toEngine(state: Dict[str, torch.Tensor], param: Dict[str, torch.Tensor], tensors: Iterable[Tuple],
             trained: Iterable[str], automatic: bool) -> Dict[str, torch.Tensor]:
    """What to write to an engine that has these tensors. Hyper-parameters come from the optimizer itself, but for an
    automatic loss scale."""
    out = {}
    missing = []
    for name, _, dims, _ in tensors:
        is_state, names = _names(name, trained)
        source = state
        if automatic and name == _SCALING:
            source = param
        elif not is_state:
            continue
        found = next((source[n] for n in names if n in source), None)
        if found is None or tuple(found.shape) != tuple(dims):
            missing.append(names[0] if names else name)
        else:
            out[name] = found.detach().contiguous()
    if missing:
        logger.warning("The optimizer state has no %s: they keep their values", ", ".join(missing))
    return out


def namesOf(tensors: Iterable[Tuple], states: Iterable[str], trained: Iterable[str]) -> List[str]:
    """The names in PopTorch of the engine's tensors that are none of the model's own states."""
    return [n for t in tensors if t[0] not in states for n in _names(t[0], trained)[1]]
