"""The prompt of a task: all that somebody needs who has nothing else.

The prompts of one task differ in their last section only, between the two marker lines, and nowhere else by a single
byte. They never hold a check, the name of a property or a workload that is held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from string import Template

from d2k.compiler.distributions import FAMILIES
from d2k.compiler.signature import (
    c_signature,
    is_scalar,
    prepare_signature,
    prepared_signature,
    python_scalar,
    python_signature,
)
from d2k.spec.device import Device, bound, devices
from d2k.spec.dtypes import DTYPES
from d2k.spec.guidance import Item
from d2k.spec.hardware import ARCHITECTURES
from d2k.spec.task import Direction, Task, Tensor, TensorInstance, Value, Workload
from d2k.spec.vocabulary import Level

GUIDANCE = ("none", "L1", "L1+L2", "full")
"""How much guidance a prompt may hold."""

BEGIN, END = "<!-- guidance begins -->", "<!-- guidance ends -->"
"""The lines around the guidance section; all prompts of a task have both."""

_LEVELS = {
    "none": (),
    "L1": (Level.L1,),
    "L1+L2": (Level.L1, Level.L2),
    "full": (Level.L1, Level.L2, Level.L3),
}
_LEVEL_TITLES = {
    Level.L1: "L1: insights about the algorithm",
    Level.L2: "L2: how the data flows",
    Level.L3: "L3: techniques of the hardware",
}
_TORCH_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "tf32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e8m0": "float8_e8m0fnu",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
}


def prompt(task: Task, guidance: str) -> str:
    """The prompt as Markdown; `guidance` is one of `GUIDANCE`."""
    sections = [
        f"# {task.title}\n\nWrite the fastest GPU kernel for the task below (`{task.id}`).",
        f"## What to compute\n\n```text\n{task.summary.strip()}\n```",
        f"## Interface\n\n{_interface(task)}",
        f"## Tensors\n\n{_tensors(task)}",
        f"## Sizes\n\n{_sizes(task)}",
        f"## Workloads\n\n{_workloads(task)}",
        f"## When a result is right\n\n{_judgement(task)}",
        f"## How time is measured\n\n{_timing(task)}",
        f"## Rules\n\n{_rules(task)}",
        f"## Hardware\n\n{_hardware(task)}",
        f"## What to submit\n\n{_submission(task)}",
        f"## Guidance\n\n{BEGIN}\n{_guidance(task, guidance)}{END}",
    ]
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def prompt_hashes(task: Task) -> dict[str, str]:
    """SHA-256 of every prompt of a task, by its guidance."""
    return {name: sha256(prompt(task, name).encode()).hexdigest() for name in GUIDANCE}


# ---- interface -------------------------------------------------------------------------------------------------------


def _interface(task: Task) -> str:
    parts = [f"```python\n{python_signature(task)}\n```", _text("call")]
    prepare = prepare_signature(task)
    if prepare:
        parts.append(_text("prepare", prepare=prepare, prepared=prepared_signature(task), entry=task.entry))
    return "\n\n".join(parts)


def _tensors(task: Task) -> str:
    rows = [_row("name", "kind", "type", "shape", "contents")]
    rows.append(_row(*["---"] * 5))
    rows += [_row(f"`{one.name}`", _kind(one), _type(one), _shape(one), _contents(one, task)) for one in task.arguments]
    notes = [*_packing(task), *_families(task), *_draws(task)]
    return "\n".join(rows) + "".join(f"\n\n{note}" for note in notes)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.direction}, constant" if tensor.constant else str(tensor.direction)


def _type(tensor: Tensor) -> str:
    if is_scalar(tensor):
        return f"Python {python_scalar(tensor)}"
    if tensor.packed:
        return f"`{tensor.dtype}` packed in `torch.{_TORCH_TYPES[tensor.packed]}`"
    return f"`torch.{_TORCH_TYPES[tensor.dtype]}`"


def _shape(tensor: Tensor) -> str:
    return "scalar" if is_scalar(tensor) else f"`[{', '.join(tensor.shape)}]`"


def _contents(tensor: Tensor, task: Task) -> str:
    if tensor.direction is Direction.OUTPUT:
        return "to be written"
    if is_scalar(tensor) and tensor.distribution.startswith("values("):
        return f"always `{tensor.distribution.removeprefix('values(').removesuffix(')')}`"
    drawn = next((one for one in task.draws if tensor.name in one.tensors), None)
    if drawn is not None:
        return (
            f"made together with {_names(drawn.tensors, tensor.name)}, see below" if drawn.tensors[1:] else "see below"
        )
    return f"`{tensor.distribution}`"


def _packing(task: Task) -> Iterator[str]:
    for one in task.arguments:
        if one.packed:
            bits, container = DTYPES[one.dtype].bits, DTYPES[one.packed].bits
            yield (
                f"`{one.name}` is stored with {container // bits} elements of {bits} bits in each element of "
                f"`torch.{_TORCH_TYPES[one.packed]}`, along the last axis, the first element in the lowest bits; the "
                f"last extent of what is stored is the one above divided by {container // bits}."
            )


def _families(task: Task) -> Iterator[str]:
    shown = [one for workload in shown_workloads(task) for one in workload.tensors if one.shape]
    used = sorted({one.distribution.family for one in shown if one.distribution})
    if used:
        meanings = "; ".join(f"`{name}`: {FAMILIES[name].meaning}" for name in used)
        yield f"Contents, random elements being independent of each other: {meanings}."


def _draws(task: Task) -> Iterator[str]:
    for draw in task.draws:
        yield f"Contents of {_names(draw.tensors)}: {_paragraphs(draw.function.doc)}"


# ---- sizes and workloads ---------------------------------------------------------------------------------------------


def shown_workloads(task: Task) -> tuple[Workload, ...]:
    """The workloads that a prompt may name."""
    return tuple(one for one in task.workloads if not one.held_out)


def _sizes(task: Task) -> str:
    axes = ", ".join(
        f"`{one.name}`" + ("" if one.type == "int" else f" ({_AXIS_WORDS[one.type]})") for one in task.axes
    )
    lines = [f"Free sizes: {axes}."]
    if task.lets:
        lines.append("Derived: " + ", ".join(f"`{one.name} = {one.expression}`" for one in task.lets) + ".")
    functions = [f"`{name}` is {meaning}" for name, meaning in _FUNCTIONS.items() if _mentions(task, name)]
    if functions:
        lines.append(f"Here {', '.join(functions)}.")
    if task.where:
        lines.append("Always true, for the hidden workloads too: " + ", ".join(f"`{one}`" for one in task.where) + ".")
    return "\n".join(lines)


_AXIS_WORDS = {
    "float": "number",
    "bool": "true or false",
    "ints": "list of integers",
    "floats": "list of numbers",
    "bools": "list of truth values",
}
_FUNCTIONS = {
    "cdiv": "division rounded up",
    "rup": "rounding up to a multiple",
    "tri": "n * (n + 1) // 2",
    "len": "the length of a list",
}


def _mentions(task: Task, function: str) -> bool:
    texts = [*(one.expression for one in task.lets), *task.where, *(e for one in task.tensors for e in one.shape)]
    return any(f"{function}(" in text for text in texts)


def _workloads(task: Task) -> str:
    parts = ["Each of these is checked and timed:"]
    parts += [_workload(task, one) for one in shown_workloads(task)]
    if any(one.held_out for one in task.workloads):
        parts.append("Hidden workloads follow the same conditions; small and odd sizes are among them.")
    parts.append(
        "The cost model counts a multiply-add as two operations, and each element that must be touched as moving once. "
        "The bound is the larger of operations over peak rate and bytes over bandwidth."
    )
    return "\n\n".join(parts)


def _workload(task: Task, workload: Workload) -> str:
    lines = [f"### {workload.name}", ""]
    if workload.origin:
        lines.append(f"- origin: {workload.origin}")
    lines.append("- sizes: " + ", ".join(f"{name} = {_value(value)}" for name, value in _all_sizes(workload)))
    arguments = [(one, workload.tensor(one.name)) for one in task.arguments]
    lines.append(
        "- shapes: " + ", ".join(f"{one.name} {list(found.storage_shape)}" for one, found in arguments if one.shape)
    )
    scalars = [f"{one.name} = {_scalar(found)}" for one, found in arguments if _is_given(one, found)]
    if scalars:
        lines.append("- scalars: " + ", ".join(scalars))
    lines += [f"- contents of {name}: {text}" for name, text in _overrides(task, workload)]
    operations = ", ".join(f"{_quantity(count)}FLOP on {engine}" for engine, count in workload.flops.items())
    lines.append(f"- cost: {operations}; {_quantity(workload.bytes)}B; {_bounds(task, workload)}")
    if "latency" in workload.tags:
        lines.append("- so short that launches and latency matter more than the bound")
    return "\n".join(lines)


def _all_sizes(workload: Workload) -> list[tuple[str, Value]]:
    return [*workload.axes.items(), *workload.lets.items()]


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, tuple):
        return str(value)
    runs = [(one, len(list(same))) for one, same in groupby(value)]
    return (
        "[" + ", ".join(f"{_value(one)}" if count == 1 else f"{count} times {_value(one)}" for one, count in runs) + "]"
    )


def _is_given(tensor: Tensor, found: TensorInstance) -> bool:
    """Whether a scalar has one known value in a workload, and is not drawn at random."""
    return is_scalar(tensor) and found.distribution is not None and found.distribution.family == "values"


def _scalar(found: TensorInstance) -> str:
    assert found.distribution is not None
    (value,) = found.distribution.arguments.values()
    return _value(value[0] if isinstance(value, tuple) else value)


def _overrides(task: Task, workload: Workload) -> Iterator[tuple[str, str]]:
    """Tensors of a shown workload whose contents are not those of the table."""
    for one in task.tensors:
        found = workload.tensor(one.name).distribution
        family = one.distribution.partition("(")[0].rpartition(" ")[2].lstrip("-")
        if found is not None and one.shape and found.family != family:
            yield one.name, f"`{found.family}`, {FAMILIES[found.family].meaning}"


def _bounds(task: Task, workload: Workload) -> str:
    found = [(device, bound(workload, device)) for device in _devices(task)]
    times = [f"{_microseconds(one.seconds)} on {device.name} ({one.limit})" for device, one in found if one is not None]
    return f"bound {', '.join(times) or 'not known'}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-4 else f"{seconds * 1e6:.0f} us"


def _quantity(count: int) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.4g} {prefix}"
    return f"{count} "


# ---- judgement, time, rules ------------------------------------------------------------------------------------------


def _judgement(task: Task) -> str:
    lines = []
    for one in task.tolerances:
        rule = f"|got - ref| <= {one.atol:g} + {one.rtol:g} * |ref|"
        if one.atol == one.rtol == 0:
            rule = "got == ref"
        share = "every element" if one.matched == 1 else f"{one.matched:.4%} of the elements"
        extra = ""
        if one.max_ulp is not None:
            extra += f", and at most {one.max_ulp} units in the last place apart"
        if one.relative_rms is not None:
            part = f"each slab of {one.slab_rows} rows" if one.slab_rows else "the whole tensor"
            extra += f", and rms(got - ref) <= {one.relative_rms:g} * rms(ref) over {part}"
        lines.append(f"- `{one.output}`: {rule} for {share}{extra} ({one.because})")
    for compare in task.compares:
        verb = "are judged together" if compare.outputs[1:] else "is judged by a rule of its own"
        lines.append(f"- {_names(compare.outputs)} {verb}: {compare.because or _paragraphs(compare.function.doc)}")
    return "\n".join(lines) + "\n\n" + _text("judged")


def _timing(task: Task) -> str:
    known = [f"- `{one.name}`: {_paragraphs(one.function.doc) or 'no description'}" for one in task.baselines]
    baselines = "Baselines, measured beside your kernel:\n\n" + "\n".join(known or ["- `eager`: " + _EAGER])
    return f"{_text('timing')}\n\n{baselines}"


_EAGER = "ordinary PyTorch operations in the working types, as a competent user writes them, without compilation"


def _rules(task: Task) -> str:
    forbidden = ", ".join(f"`{one}`" for one in task.forbid)
    return _text("rules") + (f"\n\nForbidden by name, in every form: {forbidden}." if forbidden else "")


# ---- hardware and submission -----------------------------------------------------------------------------------------


def _devices(task: Task) -> list[Device]:
    return [devices()[one] for one in task.target if one in devices()]


def _hardware(task: Task) -> str:
    engines = {engine for workload in task.workloads for engine in workload.flops}
    lines = ["Targets, each measured by itself:", ""]
    for one in _devices(task):
        peaks = ", ".join(
            f"{engine} {rate / 1e12:.0f} TFLOP/s"
            for engine, rate in one.peak.items()
            if engine in engines or engine.startswith("tensor.")
        )
        tensor_memory = f", {one.tensor_memory_bytes_per_sm >> 10} KiB of tensor memory for each SM"
        lines.append(
            f"- {one.name} (`{one.architecture}a`): {one.sms} SMs at up to {one.max_clock_hz / 1e6:.0f} MHz, "
            f"{one.memory_bytes / 1e9:.0f} GB of memory at {one.bandwidth / 1e12:.1f} TB/s, "
            f"{one.l2_bytes >> 20} MiB of L2, {one.shared_bytes_per_sm >> 10} KiB of shared memory for each SM "
            f"({one.shared_bytes_per_block >> 10} for a block), {one.registers_per_sm >> 10}K registers of 32 bits "
            f"for each SM"
            f"{tensor_memory if one.tensor_memory_bytes_per_sm else ''}. Dense peaks: {peaks}. "
            f"Features: {', '.join(sorted(ARCHITECTURES[one.architecture].features))}."
        )
    return "\n".join(lines)


def _submission(task: Task) -> str:
    return _text("submission", entry=task.entry, c_signature=c_signature(task))


# ---- guidance --------------------------------------------------------------------------------------------------------


def _guidance(task: Task, guidance: str) -> str:
    levels = _LEVELS[guidance]
    if not levels:
        return ""
    lines = ["An expert would build it like this. Each decision names those that it rests on.", ""]
    for level in levels:
        items = [one for one in task.guidance if one.level is level]
        if items:
            lines += [f"### {_LEVEL_TITLES[level]}", "", *(_item(task, one) for one in items), ""]
    return "\n".join(lines)


def _item(task: Task, item: Item) -> str:
    lines = [f"- **{item.id}**: {item.title.rstrip('.')}."]
    if item.requires:
        lines.append(f"  Rests on: {', '.join(item.requires)}.")
    where = _applies(task, item)
    if where:
        lines.append(f"  Applies {where}.")
    if item.why:
        lines.append(f"  Why: {item.why}")
    if item.hint:
        lines.append(f"  How: {item.hint}")
    return "\n".join(lines)


def _applies(task: Task, item: Item) -> str:
    """On which targets and shown workloads an item applies; "" if on all."""
    every = tuple(one.name for one in shown_workloads(task))
    shown = {target: tuple(one for one in item.applies.get(target, ()) if one in every) for target in task.target}
    targets = [target for target in task.target if shown[target]]
    if not targets:
        return "to none of the workloads above"
    names = shown[targets[0]]
    parts = [f"on {' and '.join(ARCHITECTURES[one].device for one in targets)}"] if targets != list(task.target) else []
    if names != every:
        parts.append(f"to {', '.join(names)}")
    return " ".join(parts)


# ---- text ------------------------------------------------------------------------------------------------------------


def _text(name: str, **values: str) -> str:
    found = files("d2k.compiler").joinpath("prompt_text", f"{name}.md").read_text(encoding="utf-8")
    return Template(found).substitute(values).strip("\n")


def _paragraphs(doc: str) -> str:
    """A docstring with each paragraph on one line."""
    return " ".join(" ".join(paragraph.split()) for paragraph in doc.split("\n\n"))


def _names(names: tuple[str, ...], without: str = "") -> str:
    return ", ".join(f"`{one}`" for one in names if one != without)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
