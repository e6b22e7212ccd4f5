"""Check and time the kernels that ship with the tasks; needs torch and triton only, not the d2k package.

    python benchmarks/bench_tasks.py check                    # every kernel on every workload, on the GPU
    TRITON_INTERPRET=1 python benchmarks/bench_tasks.py check --small --device cpu
    python benchmarks/bench_tasks.py time --json results.json

`check` compares with the task's reference on poisoned outputs and fresh inputs, with the task's tolerances.
`time` reports device time: from the start of a call's first kernel to the end of its last, read from CUPTI's activity
records through torch.profiler. Before each call the L2 cache is flushed (twice its size is written, then read) and a
spinning kernel holds the GPU until the host has queued the call. Baselines and kernels take turns, inputs rotate.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.util
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

TASKS = Path(__file__).resolve().parent.parent / "tasks"

Tensors = tuple[torch.Tensor, ...]
Inputs = tuple[torch.Tensor | bool, ...]
Axes = dict[str, int]


@dataclass(frozen=True)
class Task:
    """What a task asks for: the same shapes, data and tolerances as its `task.d2k`; axes in its order."""

    name: str
    workloads: dict[str, Axes]  # timed and checked
    edges: dict[str, Axes]  # checked only: ragged, tiny and held-out shapes
    small: list[Axes]  # for Triton's interpreter
    inputs: Callable[[Axes, torch.Generator, torch.dtype], Inputs]
    outputs: Callable[[Axes, torch.dtype], list[tuple[tuple[int, ...], torch.dtype]]]
    accept: Callable[[Inputs, Tensors, Tensors], tuple[bool, str]]
    flops: Callable[[Axes], int]
    bytes: Callable[[Axes], int]
    dtype: torch.dtype = torch.bfloat16


# --- the three tasks -------------------------------------------------------------------------------------------------


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device, dtype=torch.float32)


def gemm_inputs(a: Axes, g: torch.Generator, dtype: torch.dtype) -> Inputs:
    A = normal(g, a["M"], a["K"])
    W = normal(g, a["N"], a["K"]) / math.sqrt(a["K"])
    bias = 0.1 * normal(g, a["N"])
    return A.to(dtype), W.to(dtype), bias.to(dtype)


def rmsnorm_inputs(a: Axes, g: torch.Generator, dtype: torch.dtype) -> Inputs:
    x, r = load(TASKS / "add_rmsnorm_fp8quant" / "data.py").rows_with_outlier_columns(a, g)
    w = torch.rand(a["H"], generator=g, device=g.device) + 0.5
    return x, r, w.to(dtype)


def attention_inputs(a: Axes, g: torch.Generator, dtype: torch.dtype) -> Inputs:
    B, S, Hq, Hk, D = (a[name] for name in ("B", "S", "Hq", "Hk", "D"))
    return (
        (2.0 * normal(g, B, S, Hq, D)).to(dtype),
        normal(g, B, S, Hk, D).to(dtype),
        normal(g, B, S, Hk, D).to(dtype),
        bool(a["causal"]),
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


def gemm_accept(inputs: Inputs, got: Tensors, ref: Tensors) -> tuple[bool, str]:
    return within("Y", got[0], ref[0], atol=1e-2, rtol=1.6e-2)


def attention_accept(inputs: Inputs, got: Tensors, ref: Tensors) -> tuple[bool, str]:
    ok, said = within("O", got[0], ref[0], atol=5e-3, rtol=2e-2)
    lse_ok, lse_said = within("LSE", got[1], ref[1], atol=2e-3, rtol=1e-3)
    return ok and lse_ok, f"{said}, {lse_said}"


def rmsnorm_accept(inputs: Inputs, got: Tensors, ref: Tensors) -> tuple[bool, str]:
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
        edges={
            "bert_large_ff": {"M": 16384, "N": 4096, "K": 1024},
            "ragged_all": {"M": 1021, "N": 1544, "K": 1032},
            "single_row": {"M": 1, "N": 136, "K": 72},
        },
        small=[{"M": 256, "N": 256, "K": 128}, {"M": 131, "N": 264, "K": 72}, {"M": 1, "N": 8, "K": 8}],
        inputs=gemm_inputs,
        outputs=lambda a, dtype: [((a["M"], a["N"]), dtype)],
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
        edges={
            "llama31_70b_8k": {"T": 8192, "H": 8192},
            "short_rows": {"T": 1003, "H": 384},
            "one_row": {"T": 1, "H": 16384},
        },
        small=[{"T": 3, "H": 128}, {"T": 5, "H": 640}, {"T": 2, "H": 7168}],
        inputs=rmsnorm_inputs,
        outputs=lambda a, dtype: [
            ((a["T"], a["H"]), dtype),
            ((a["T"], a["H"]), torch.float8_e4m3fn),
            ((a["T"], a["H"] // 128), torch.float32),
        ],
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
        edges={
            "gpt_oss_120b_4k": {"B": 2, "S": 4096, "Hq": 64, "Hk": 8, "D": 64, "causal": 1},
            "ragged_causal": {"B": 1, "S": 1021, "Hq": 6, "Hk": 2, "D": 128, "causal": 1},
            "ragged_full": {"B": 2, "S": 333, "Hq": 4, "Hk": 4, "D": 64, "causal": 0},
            "single_token": {"B": 3, "S": 1, "Hq": 8, "Hk": 1, "D": 128, "causal": 1},
        },
        small=[
            {"B": 1, "S": 256, "Hq": 2, "Hk": 1, "D": 64, "causal": 1},
            {"B": 2, "S": 133, "Hq": 3, "Hk": 1, "D": 16, "causal": 1},
            {"B": 1, "S": 133, "Hq": 2, "Hk": 2, "D": 32, "causal": 0},
            {"B": 1, "S": 70, "Hq": 1, "Hk": 1, "D": 256, "causal": 1},
            {"B": 2, "S": 1, "Hq": 4, "Hk": 2, "D": 128, "causal": 1},
        ],
        inputs=attention_inputs,
        outputs=lambda a, dtype: [
            ((a["B"], a["S"], a["Hq"], a["D"]), dtype),
            ((a["B"], a["Hq"], a["S"]), torch.float32),
        ],
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


def entry(task: Task, kernel: str, axes: Axes) -> Callable[..., None]:
    """The `run(inputs…, outputs…)` of a kernel file, Triton or CUDA, or of a baseline by its name."""
    path = TASKS / task.name / kernel
    if not path.suffix:
        return filling(getattr(load(TASKS / task.name / "baseline.py"), kernel), len(task.outputs(axes, task.dtype)))
    if path.suffix != ".cu":
        return load(path).run
    function = cuda_function(path)

    def run(*args: torch.Tensor | bool) -> None:
        given = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_bool(a) for a in args]
        sizes = [ctypes.c_int64(size) for size in axes.values()]
        code = function(*given, *sizes, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if code != 0:
            raise RuntimeError(f"{path.name}: CUDA error {code}")

    return run


def filling(function: Callable[..., Tensors], outputs: int) -> Callable[..., None]:
    """Turn a function that returns its outputs into one that fills them."""

    def run(*args: torch.Tensor | bool) -> None:
        results = function(*args[:-outputs])
        given = [a for a in args[-outputs:] if isinstance(a, torch.Tensor)]
        for result, output in zip(results, given, strict=True):
            assert result.dtype == output.dtype, (result.dtype, output.dtype)
            output.copy_(result)

    return run


@functools.cache
def cuda_function(path: Path) -> Callable[..., int]:
    """Compile for the GPU at hand: `int run(inputs…, outputs…, int64 axes…, stream)`, see docs/submissions.md."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}a"
    library = Path(tempfile.mkdtemp()) / f"{path.parent.name}_{path.stem}.so"
    target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    flags = ["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", target]
    subprocess.run([shutil.which("nvcc") or "nvcc", *flags, "-o", str(library), str(path)], check=True)
    return ctypes.CDLL(str(library)).run


# --- check -----------------------------------------------------------------------------------------------------------


def check(
    task: Task, kernel: str, label: str, axes: Axes, dtype: torch.dtype, device: torch.device, seeds: int
) -> bool:
    """Run one kernel on fresh inputs per seed; print one line; True when every seed is right."""
    run = entry(task, kernel, axes)
    reference = load(TASKS / task.name / "reference.py").run
    for seed in range(seeds):
        generator = torch.Generator(device).manual_seed(seed)
        inputs = task.inputs(axes, generator, dtype)
        kept = [t.clone() if isinstance(t, torch.Tensor) else torch.tensor(t) for t in inputs]
        got = make_outputs(task, axes, dtype, device)
        run(*inputs, *got)
        ok, said = task.accept(inputs, got, reference(*inputs))
        if ok and not all(torch.equal(torch.as_tensor(now), was) for now, was in zip(inputs, kept, strict=True)):
            ok, said = False, "inputs were changed"
        if not ok:
            print(f"WRONG {task.name} {kernel} {label} seed {seed}: {said}", flush=True)
            return False
    print(f"right {task.name} {kernel} {label}: {said}", flush=True)
    return True


# --- time ------------------------------------------------------------------------------------------------------------

SPIN_CYCLES = 2_000_000  # about a millisecond: longer than the host takes to queue any call here


@dataclass(frozen=True)
class Timing:
    """Device time of one contestant on one workload, in microseconds."""

    samples: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


def flusher(device: torch.device) -> Callable[[], None]:
    """Writes, then reads, twice the L2 cache."""
    size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    scratch = torch.zeros(size // 4, dtype=torch.int32, device=device)

    def flush() -> None:
        scratch.add_(1)
        scratch.max()

    return flush


def spans(events: list[tuple[str, int, int]]) -> list[float]:
    """(name, start ns, duration ns) of GPU activities -> microseconds of each call.

    A call lies between two spinning kernels; the flush lies between the second and the first of the next call.
    """
    result: list[float] = []
    inside = False
    start = end = 0
    for name, begin, duration in sorted(events, key=lambda event: event[1]):
        if "spin_kernel" in name:
            if inside:
                result.append((end - start) / 1e3)
            inside, start, end = not inside, 0, 0
        elif inside:
            start = start or begin
            end = max(end, begin + duration)
    return result


def measure(calls: list[Callable[[int], object]], repetitions: int, device: torch.device) -> list[Timing]:
    """Time the calls in turns; each is given the number of its repetition, to choose its inputs by."""
    flush = flusher(device)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        for repetition in range(repetitions):
            for call in calls:
                flush()
                torch.cuda._sleep(SPIN_CYCLES)
                call(repetition)
                torch.cuda._sleep(1)
        torch.cuda.synchronize()
    events = [
        (event.name(), event.start_ns(), event.duration_ns())
        for event in profile.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    ]
    found = spans(events)
    assert len(found) == repetitions * len(calls), (len(found), repetitions, len(calls))
    return [Timing(found[i :: len(calls)]) for i in range(len(calls))]


def contestants(
    task: Task, axes: Axes, kernels: list[str], compiled: bool
) -> dict[str, tuple[Callable[..., object], bool]]:
    """Name -> (function, whether it is a kernel that fills its outputs)."""
    baseline = load(TASKS / task.name / "baseline.py")
    found: dict[str, tuple[Callable[..., object], bool]] = {"eager": (baseline.eager, False)}
    if compiled:
        # Without this Inductor keeps h in fp32 where PyTorch rounds it, and fails add_rmsnorm_fp8quant's check.
        torch._inductor.config.emulate_precision_casts = True
        found["compile"] = (torch.compile(baseline.eager, dynamic=False), False)
    found["library"] = (baseline.library, False)
    for kernel in kernels:
        if (TASKS / task.name / kernel).exists():
            found[kernel] = (entry(task, kernel, axes), True)
    return found


def time_workload(
    task: Task, label: str, axes: Axes, kernels: list[str], budget_ms: float, compiled: bool, device: torch.device
) -> dict[str, object]:
    """Time every contestant on one workload; print one line each; a contestant that fails is named and left out."""
    generator = torch.Generator(device).manual_seed(0)
    pool = [task.inputs(axes, generator, task.dtype) for _ in range(3)]
    outputs = make_outputs(task, axes, task.dtype, device)
    calls: dict[str, Callable[[int], object]] = {}
    rough: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, (function, fills) in contestants(task, axes, kernels, compiled).items():

        def call(i: int, function: Callable[..., object] = function, fills: bool = fills) -> object:
            inputs = pool[i % len(pool)]
            return function(*inputs, *(outputs if fills else ()))

        try:
            call(0)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call(0)
            end.record()
            end.synchronize()
        except Exception as error:  # a baseline may lack this shape on this GPU
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            print(f"{task.name} {label} {name}: failed, {failed[name]}", flush=True)
            continue
        calls[name], rough[name] = call, begin.elapsed_time(end)
    repetitions = max(5, min(50, int(budget_ms / sum(rough.values()))))
    timings = dict(zip(calls, measure(list(calls.values()), repetitions, device), strict=True))
    for name, timing in timings.items():
        us = timing.median
        rates = f"{task.flops(axes) / us / 1e6:.0f} TFLOP/s {task.bytes(axes) / us / 1e3:.0f} GB/s"
        against = " ".join(f"{base} x{timings[base].median / us:.2f}" for base in timings if "." not in base)
        print(f"{task.name} {label} {name}: {us:.2f} us of {repetitions}, {rates}, {against}", flush=True)
    return {
        "task": task.name,
        "workload": label,
        "axes": axes,
        "flops": task.flops(axes),
        "bytes": task.bytes(axes),
        "samples_us": {name: timing.samples for name, timing in timings.items()},
        "failed": failed,
    }


def machine(device: torch.device) -> dict[str, str]:
    import triton

    return {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "time"])
    parser.add_argument("--task", action="append", help="only these tasks")
    parser.add_argument("--kernel", action="append", help="only these files, or baselines by name")
    parser.add_argument("--small", action="store_true", help="check: small shapes, for Triton's interpreter")
    parser.add_argument("--seeds", type=int, default=2, help="check: rounds of fresh inputs")
    parser.add_argument("--budget-ms", type=float, default=1000.0, help="time: GPU time per workload, about")
    parser.add_argument("--compile", action="store_true", help="time: torch.compile of the eager baseline, too")
    parser.add_argument("--json", type=Path, help="time: write every sample to this file")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        import triton_interpreter

        triton_interpreter.install()
    device = torch.device(args.device)
    kernels = args.kernel or ["naive.py", "expert.py"] + ([] if device.type == "cpu" else ["naive.cu", "expert.cu"])
    tasks = [task for task in ALL if not args.task or task.name in args.task]
    if args.command == "time":
        about = machine(device)
        print(about, flush=True)
        rows = [
            time_workload(task, label, axes, kernels, args.budget_ms, args.compile, device)
            for task in tasks
            for label, axes in task.workloads.items()
        ]
        if args.json:
            args.json.write_text(json.dumps({"machine": about, "workloads": rows}))
        return 0
    right = True
    for task in tasks:
        shapes = {json.dumps(a): a for a in task.small} if args.small else task.workloads | task.edges
        for kernel in kernels:
            if "." in kernel and not (TASKS / task.name / kernel).exists():
                continue
            for label, axes in shapes.items():
                right &= check(task, kernel, label, axes, task.dtype, device, args.seeds)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
