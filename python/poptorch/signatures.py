"""The signatures of torch.ops.poptorch, in torch's own notation; _torch_ops.py is what they call.

    poptorch.signatures.OPS["nop"]          nop(Tensor self) -> Tensor
    poptorch.signatures.schema("nop")       the same, parsed

Programs that call these skip the functions of poptorch that are made for them. Each does what that function does, and those
which only mean something inside of PopTorch are an Error that says so.
"""

from typing import Any

import torch

_TEXT = """
begin_ipu_block(int stage_id, int phase_id, int ipu_id) -> ()
begin_multi_conv() -> ()
call_cpu_op(Tensor[] inputs, str name) -> ()
clear_attribute(str attribute, str key) -> ()
ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank, int beam_width, int top_paths) -> (Tensor, Tensor, Tensor)
custom_operation(Tensor[] inputs, str name, str domain, int domain_version, int num_outputs, Tensor[] example_outputs, str attributes_map_id) -> Tensor[]
dynamic_slice(Tensor self, int dim, Tensor start, int size, int step) -> Tensor
dynamic_update(Tensor self, Tensor src, int dim, Tensor start, int size) -> Tensor
end_cpu_op(Tensor[] outputs) -> Tensor[]
end_for_loop(Tensor[] outputs, Tensor[] inputs, int trip_count) -> Tensor[]
end_if_block(Tensor[] else_outputs, Tensor condition) -> Tensor[]
end_ipu_block() -> ()
end_multi_conv(float[]? available_memory_proportions=None, int[]? partials_types=None, int? plan_type=None, int? per_conv_reserved_tiles=None, float? cycle_back_off=None, int[]? enable_conv_dithering=None) -> ()
fps(Tensor src, int[] ptr, float ratio, bool random_start) -> Tensor
identity_loss(Tensor x, int reduction) -> Tensor
internal_cast(Tensor self, str dtype) -> Tensor
ipu_print_tensor(Tensor self, str title="", bool print_gradient=True, int summarise_threshold=1000, int edge_items=3, int max_line_width=80, int digits=4, int float_format=0, str separator=", ", str open_bracket="(", str close_bracket=")") -> Tensor
nearest(Tensor x, Tensor y, Tensor? batch_x=None, Tensor? batch_y=None) -> Tensor
nearest_batch_list(Tensor x, Tensor y, int[] batch_x, int[] batch_y) -> Tensor
nop(Tensor self) -> Tensor
optimizer_group(int group, Tensor[] inputs) -> ()
pop_name_scope() -> ()
push_name_scope(str name) -> ()
recomputation_checkpoint(Tensor self) -> Tensor
set_attribute(str attribute, str key, str value) -> ()
set_available_memory(Tensor self, float mem) -> Tensor
set_matmul_serialization(Tensor matmul, str mode, int factor, bool keep_precision) -> Tensor
set_overlap_for_input(Tensor self, str mode) -> Tensor
set_overlap_for_output(Tensor self, str mode) -> Tensor
start_else_block(Tensor[] then_outputs) -> ()
start_for_loop(Tensor[] inputs) -> ()
start_if_block(Tensor condition) -> ()
"""    # noqa: E501

#: By name.
OPS = {line.partition("(")[0]: line for line in _TEXT.strip().splitlines()}


def schema(name: str) -> Any:
    """The signature of an op: its `arguments` and `returns`."""
    return torch._C.parse_schema(f"poptorch::{OPS[name]}")
