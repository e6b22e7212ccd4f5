"""Library operations that do a computation's work, by what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.patterns.host_calls import HostCall, host_calls
from d2k.analyzers.patterns.hosts import short

CONTRACTIONS = frozenset(
    {
        *("matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "einsum", "tensordot", "chain_matmul"),
        *("linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "convolution"),
        *("conv_transpose3d", "scaled_dot_product_attention", "multi_head_attention_forward", "_scaled_mm", "_int_mm"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_grouped_mm"),
        *("_scaled_grouped_mm", "scaled_mm", "grouped_mm", "Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d"),
        *("MultiheadAttention", "flash_attn_func", "flash_attn_varlen_func", "memory_efficient_attention"),
        *("flash_attn_qkvpacked_func", "flash_attn_with_kvcache", "flex_attention"),
    }
)
"""Matrix products, convolutions and attention."""

OPERATORS = frozenset(
    {
        *("sort", "argsort", "topk", "kthvalue", "msort", "multinomial", "unique", "unique_consecutive"),
        *("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "native_layer_norm", "LayerNorm"),
        *("RMSNorm", "GroupNorm", "softmax", "log_softmax", "_softmax", "cross_entropy", "nll_loss", "embedding_bag"),
        *("EmbeddingBag", "CrossEntropyLoss", "logsumexp", "gumbel_softmax"),
    }
)
"""Whole operators with a reduction, a scan or a selection."""

TORCH = ("torch.", "at.", "aten.", "c10.", "F.", ".", "self.", "xformers.", "flash_attn.", "flashinfer.", "functional.")
VENDOR = ("cublas", "cudnn", "cusparse", "cusolver", "cufft", "nvmath.", "cupy.")
PRIMITIVES = ("cub.", "thrust.", "moderngpu.")
TEMPLATES = ("cutlass.", "cute.")


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """`work` is contraction, operator, primitive (sorting, scanning, reducing), compiled, or template: an instance of
    a template library, whose design the author chose."""

    call: HostCall
    work: str


def library_calls(program: ProgramView) -> Iterator[LibraryCall]:
    """Calls of host code that runs into libraries that do heavy work on the device."""
    for call in host_calls(program, module=False):
        work = _work(call)
        if work:
            yield LibraryCall(call, work)


def _work(call: HostCall) -> str:
    name = call.name
    callee = call.op.attrs.get("callee")
    last = short(name).removesuffix("_")
    if name.startswith(TEMPLATES):
        return "template"
    if name.startswith(PRIMITIVES):
        return "primitive"
    lowered = name.lower()
    if lowered.startswith(VENDOR):
        return "contraction" if _multiplies(lowered) else ""
    if isinstance(callee, str) and callee.startswith("torch."):
        last = short(callee)
    if name == "torch.compile":
        return "compiled"
    if not name.startswith(TORCH) and callee is None:
        return ""
    if last in CONTRACTIONS:
        return "contraction"
    return "operator" if last in OPERATORS and _is_whole(call) else ""


def _multiplies(name: str) -> bool:
    """A product or convolution; creating handles and setting streams does no work."""
    return any(
        word in name for word in ("gemm", "gemv", "matmul", "conv", "spmm", "trsm", "syrk", "execute", "backendexecute")
    )


def _is_whole(call: HostCall) -> bool:
    """Not a method of something that is no tensor, such as sorting a list."""
    if not call.name.startswith("."):
        return True
    receiver = call.view.op(call.op.args[0]) if call.op.args else None
    return receiver is not None and receiver.name not in ("list", "dict", "tuple", "set")
