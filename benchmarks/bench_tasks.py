"""Check and time the kernels that ship with the tasks; needs torch and triton only, not the d2k package.

    python benchmarks/bench_tasks.py check                    # every kernel on every workload, on the GPU
    TRITON_INTERPRET=1 python benchmarks/bench_tasks.py check --small --device cpu
    python benchmarks/bench_tasks.py time --json results.json

`check` compares with the task's reference on poisoned outputs and fresh inputs, with the task's tolerances.
`time` reports the median of cold-cache runs, with baselines and kernels taking turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

TASKS = Path(__file__).resolve().parent.parent / "tasks"

Tensors = tuple[torch.Tensor, ...]
Axes = dict[str, int]


@dataclass(frozen=True)
class Task:
    """What a task asks for: the same shapes, data and tolerances as its `task.d2k`."""

    name: str
    workloads: dict[str, Axes]
    small: list[Axes]
    inputs: Callable[[Axes, torch.Generator, torch.dtype], Tensors]
    outputs: Callable[[Axes, torch.dtype], list[tuple[tuple[int, ...], torch.dtype]]]
    extra: Callable[[Axes], tuple[bool, ...]]
    accept: Callable[[Tensors, Tensors, Tensors], tuple[bool, str]]
    flops: Callable[[Axes], int]
    bytes: Callable[[Axes], int]
    dtype: torch.dtype = torch.bfloat16


# --- the three tasks -------------------------------------------------------------------------------------------------


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device, dtype=torch.float32)


def gemm_inputs(a: Axes, g: torch.Generator, dtype: torch.dtype) -> Tensors:
    A = normal(g, a["M"], a["K"])
    W = normal(g, a["N"], a["K"]) / math.sqrt(a["K"])
    bias = 0.1 * normal(g, a["N"])
    return A.to(dtype), W.to(dtype), bias.to(dtype)


def rmsnorm_inputs(a: Axes, g: torch.Generator, dtype: torch.dtype) -> Tensors:
    T, H = a["T"], a["H"]
    outlier = torch.rand(H, generator=g, device=g.device) < 1e-3
    columns = torch.where(outlier, 20.0, 1.0)
    x, r = normal(g, T, H) * columns, normal(g, T, H) * columns
    w = torch.rand(H, generator=g, device=g.device) + 0.5
    return x.to(dtype), r.to(dtype), w.to(dtype)


def attention_inputs(a: Axes, g: torch.Generator, dtype: torch.dtype) -> Tensors:
    B, S, Hq, Hk, D = (a[name] for name in ("B", "S", "Hq", "Hk", "D"))
    return (
        (2.0 * normal(g, B, S, Hq, D)).to(dtype),
        normal(g, B, S, Hk, D).to(dtype),
        normal(g, B, S, Hk, D).to(dtype),
    )


def within(name: str, got: torch.Tensor, ref: torch.Tensor, atol: float, rtol: float) -> tuple[bool, str]:
    """Every element of `got` within atol + rtol * |ref|; the message gives the worst excess and its place."""
    error = (got.float() - ref.float()).abs()
    excess = error - (atol + rtol * ref.float().abs())
    bad = ~(excess <= 0)  # NaN is bad
    if not bool(bad.any()):
        return True, f"{name} max error {error.max().item():.2e}"
    where = [int(i) for i in torch.unravel_index(bad.flatten().int().argmax(), bad.shape)]
    at = tuple(where)
    return (
        False,
        f"{name} {int(bad.sum())} of {bad.numel()} wrong, first at {at}: {got[at].item()} for {ref[at].item()}",
    )


def gemm_accept(inputs: Tensors, got: Tensors, ref: Tensors) -> tuple[bool, str]:
    return within("Y", got[0], ref[0], atol=1e-2, rtol=1.6e-2)


def attention_accept(inputs: Tensors, got: Tensors, ref: Tensors) -> tuple[bool, str]:
    ok, said = within("O", got[0], ref[0], atol=5e-3, rtol=2e-2)
    lse_ok, lse_said = within("LSE", got[1], ref[1], atol=2e-3, rtol=1e-3)
    return ok and lse_ok, f"{said}, {lse_said}"


def rmsnorm_accept(inputs: Tensors, got: Tensors, ref: Tensors) -> tuple[bool, str]:
    return load(TASKS / "add_rmsnorm_fp8quant" / "reference.py").accept(inputs, got, ref)


def pairs(a: Axes) -> int:
    return a["S"] * (a["S"] + 1) // 2 if a["causal"] else a["S"] ** 2


ALL = [
    Task(
        name="gemm_bias_gelu",
        workloads={
            "flux_image_ff": {"M": 4096, "N": 12288, "K": 3072},
            "wan_14b_ff_480p": {"M": 32760, "N": 13824, "K": 5120},
            "starcoder2_15b_fc": {"M": 8192, "N": 24576, "K": 6144},
            "whisper_l3_fc1": {"M": 12000, "N": 5120, "K": 1280},
        },
        small=[{"M": 256, "N": 256, "K": 128}, {"M": 131, "N": 264, "K": 72}, {"M": 1, "N": 8, "K": 8}],
        inputs=gemm_inputs,
        outputs=lambda a, dtype: [((a["M"], a["N"]), dtype)],
        extra=lambda a: (),
        accept=gemm_accept,
        flops=lambda a: 2 * a["M"] * a["N"] * a["K"] + 12 * a["M"] * a["N"],
        bytes=lambda a: 2 * (a["M"] * a["K"] + a["N"] * a["K"] + a["N"] + a["M"] * a["N"]),
    ),
    Task(
        name="add_rmsnorm_fp8quant",
        workloads={
            "dsv3_prefill_4k": {"T": 4096, "H": 7168},
            "dsv3_decode_b64": {"T": 64, "H": 7168},
            "qwen3_32b_fp8_16k": {"T": 16384, "H": 5120},
        },
        small=[{"T": 3, "H": 128}, {"T": 5, "H": 640}, {"T": 2, "H": 7168}],
        inputs=rmsnorm_inputs,
        outputs=lambda a, dtype: [
            ((a["T"], a["H"]), dtype),
            ((a["T"], a["H"]), torch.float8_e4m3fn),
            ((a["T"], a["H"] // 128), torch.float32),
        ],
        extra=lambda a: (),
        accept=rmsnorm_accept,
        flops=lambda a: 8 * a["T"] * a["H"],
        bytes=lambda a: 7 * a["T"] * a["H"] + 2 * a["H"] + 4 * a["T"] * a["H"] // 128,
    ),
    Task(
        name="attn_prefill_gqa",
        workloads={
            "llama31_8b_8k": {"B": 2, "S": 8192, "Hq": 32, "Hk": 8, "D": 128, "causal": 1},
            "qwen3_235b_32k": {"B": 1, "S": 32768, "Hq": 64, "Hk": 4, "D": 128, "causal": 1},
            "qwen3_next_16k_d256": {"B": 1, "S": 16384, "Hq": 16, "Hk": 2, "D": 256, "causal": 1},
            "flux_joint_full": {"B": 2, "S": 4608, "Hq": 24, "Hk": 24, "D": 128, "causal": 0},
        },
        small=[
            {"B": 1, "S": 256, "Hq": 4, "Hk": 2, "D": 64, "causal": 1},
            {"B": 2, "S": 197, "Hq": 2, "Hk": 1, "D": 32, "causal": 1},
            {"B": 1, "S": 197, "Hq": 2, "Hk": 2, "D": 32, "causal": 0},
            {"B": 1, "S": 130, "Hq": 1, "Hk": 1, "D": 256, "causal": 1},
        ],
        inputs=attention_inputs,
        outputs=lambda a, dtype: [
            ((a["B"], a["S"], a["Hq"], a["D"]), dtype),
            ((a["B"], a["Hq"], a["S"]), torch.float32),
        ],
        extra=lambda a: (bool(a["causal"]),),
        accept=attention_accept,
        flops=lambda a: 4 * a["B"] * a["Hq"] * a["D"] * pairs(a),
        bytes=lambda a: 4 * a["B"] * a["S"] * a["D"] * (a["Hq"] + a["Hk"]) + 4 * a["B"] * a["Hq"] * a["S"],
    ),
]


# --- loading and calling ---------------------------------------------------------------------------------------------


def load(path: Path) -> ModuleType:
    """Import a task's file by its path."""
    name = f"{path.parent.name}.{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def poisoned(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor full of NaN."""
    if dtype == torch.float8_e4m3fn:
        return torch.full(shape, 0x7F, dtype=torch.uint8, device=device).view(dtype)
    return torch.full(shape, math.nan, dtype=dtype, device=device)


def make_outputs(task: Task, axes: Axes, dtype: torch.dtype, device: torch.device) -> Tensors:
    return tuple(poisoned(shape, kind, device) for shape, kind in task.outputs(axes, dtype))


# --- check -----------------------------------------------------------------------------------------------------------


def check(
    task: Task, kernel: str, label: str, axes: Axes, dtype: torch.dtype, device: torch.device, seeds: int
) -> bool:
    """Run one kernel on fresh inputs per seed; print one line; True when every seed is right."""
    run = load(TASKS / task.name / kernel).run
    reference = load(TASKS / task.name / "reference.py").run
    for seed in range(seeds):
        generator = torch.Generator(device).manual_seed(seed)
        inputs = task.inputs(axes, generator, dtype)
        kept = [t.clone() for t in inputs]
        got = make_outputs(task, axes, dtype, device)
        run(*inputs, *got, *task.extra(axes))
        ok, said = task.accept(inputs, got, reference(*inputs, *task.extra(axes)))
        if ok and not all(torch.equal(now, was) for now, was in zip(inputs, kept, strict=True)):
            ok, said = False, "inputs were changed"
        if not ok:
            print(f"WRONG {task.name} {kernel} {label} seed {seed}: {said}", flush=True)
            return False
    print(f"right {task.name} {kernel} {label}: {said}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check"])
    parser.add_argument("--task", action="append", help="only these tasks")
    parser.add_argument("--kernel", action="append", help="only these files, for example expert.py")
    parser.add_argument("--small", action="store_true", help="small shapes, for Triton's interpreter")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        import triton_interpreter

        triton_interpreter.install()
    device = torch.device(args.device)
    right = True
    for task in ALL:
        if args.task and task.name not in args.task:
            continue
        shapes = {json.dumps(a): a for a in task.small} if args.small else task.workloads
        for kernel in args.kernel or ["naive.py", "expert.py"]:
            if not (TASKS / task.name / kernel).exists():
                continue
            for label, axes in shapes.items():
                right &= check(task, kernel, label, axes, task.dtype, device, args.seeds)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
