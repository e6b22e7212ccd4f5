"""A task's statements resolved: every name looked up, every type checked, every output judged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from d2k.compiler import syntax
from d2k.compiler.checks import CheckScope
from d2k.compiler.contents import Contents, resolve_contents
from d2k.compiler.declarations import AxisDeclaration, CostDeclaration, Declarations, LetDeclaration, TensorDeclaration
from d2k.compiler.diagnostics import Note
from d2k.compiler.docstrings import docstring
from d2k.compiler.guidance import RESERVED, GuidanceResolver, with_applies
from d2k.compiler.modules import LANGUAGE_VERSION, Module
from d2k.compiler.source import Span
from d2k.compiler.types import Scope, Typed, Typing
from d2k.compiler.workloads import AXIS_TYPES, WorkloadEvaluation
from d2k.spec.dtypes import CONTAINERS, DTYPES, per_container
from d2k.spec.expression import Type
from d2k.spec.hardware import ARCHITECTURES, ENGINES, normalise_architecture
from d2k.spec.task import (
    TASK_SCHEMA,
    Axis,
    Baseline,
    Compare,
    Cost,
    Direction,
    Draw,
    Flops,
    Let,
    PythonFunction,
    Task,
    Tolerance,
)
from d2k.spec.vocabulary import Vocabulary

_NUMBERS = (Type.INT, Type.FLOAT)
_EMPTY_COST = CostDeclaration((), None, None, None)


class TaskResolver:
    """Resolves one task; `folder` is where its Python files lie, None if the task has no place in the file system."""

    def __init__(self, node: syntax.Task, module: Module, typing: Typing, vocabulary: Vocabulary, folder: Path | None):
        self._node = node
        self._module = module
        self._typing = typing
        self._problems = typing.problems
        self._vocabulary = vocabulary
        self._folder = folder
        self._sources: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def task(self) -> Task | None:
        """The task without its content hash, or None after a diagnostic."""
        node, before = self._node, self._problems.errors
        title, summary, entry = node.first(syntax.Title), node.first(syntax.Summary), node.first(syntax.Entry)
        for kind, name in _NECESSARY:
            if node.first(kind) is None:
                self._missing(node.name.span, "task", node.name.name, name)
        if node.first(syntax.Reference) is None:
            self._problems.report("D2K0805", node.name.span, absent=("reference",), name=node.name.name)
        target = self._target()
        reference = self._function(node.first(syntax.Reference))
        declared = self._declarations()
        baselines = self._baselines()
        tolerances, compares = self._judgements(declared)
        workloads = WorkloadEvaluation(declared, self._typing).all(node.every(syntax.Workload))
        self._report_unused(declared)
        block = node.first(syntax.Guidance)
        words = CheckScope(declared.roles, frozenset(one.name for one in declared.tensors))
        resolver = GuidanceResolver(self._typing, self._vocabulary, words, declared.scope)
        items = resolver.guidance(block, self._module) if block else ()
        guidance = with_applies(items, target, workloads, self._typing, self._vocabulary)
        if self._problems.errors > before or title is None or summary is None or entry is None:
            return None
        constants = any(one.constant for one in declared.tensors)
        return Task(
            schema=TASK_SCHEMA,
            language_version=LANGUAGE_VERSION,
            content_hash="",
            id=node.name.name,
            title=title.text.value,
            summary=summary.text.value,
            target=target,
            axes=tuple(Axis(one.name, one.type.value, one.role) for one in declared.axes if one.type),
            lets=tuple(Let(one.name, one.value.type.value, one.value.text) for one in declared.lets),
            where=tuple(one.text for one in declared.where),
            tensors=tuple(one.record for one in declared.tensors),
            draws=declared.draws,
            entry=entry.name.name,
            prepare="prepare" if constants else "",
            reference=reference,
            baselines=baselines,
            tolerances=tolerances,
            compares=compares,
            cost=_cost_record(declared.cost),
            forbid=tuple(one.name for forbid in node.every(syntax.Forbid) for one in forbid.callees),
            workloads=workloads,
            guidance=guidance,
            sources=dict(sorted(self._sources.items())),
        )

    def _missing(self, span: Span, owner: str, name: str, statement: str) -> None:
        self._problems.report("D2K0326", span, absent=(statement,), owner=owner, name=name, statement=statement)

    # ---- axes, names, tensors ----------------------------------------------------------------------------------------

    def _target(self) -> tuple[str, ...]:
        found: list[str] = []
        node = self._node.first(syntax.Target)
        for one in node.architectures if node else ():
            name = normalise_architecture(one.name)
            if name is None:
                self._problems.report_unknown("D2K0306", one.span, one.name, ARCHITECTURES)
            elif name in found:
                self._problems.report("D2K0301", one.span, name=name)
            else:
                found.append(name)
        return tuple(found)

    def _declarations(self) -> Declarations:
        scope = Scope()
        spans: dict[str, Span] = {}
        axes = [
            axis
            for node in self._node.every(syntax.Axes)
            for one in node.axes
            for axis in self._axis(one, scope, spans)
        ]
        lets = [let for node in self._node.every(syntax.Let) for let in self._let(node, scope, spans)]
        where = [self._condition(one, scope) for one in self._node.every(syntax.Where)]
        draws, drawn = self._draws()
        tensors: list[TensorDeclaration] = []
        names: dict[str, Span] = {}
        for node in self._node.every(syntax.Tensor):
            if node.name.name in names:
                note = Note("declared here first", names[node.name.name])
                self._problems.report("D2K0301", node.name.span, name=node.name.name, note=note)
                continue
            names[node.name.name] = node.name.span
            tensor, draw = self._tensor(node, scope, drawn)
            draws.extend(draw)
            if tensor is not None:
                tensors.append(tensor)
        return Declarations(
            tuple(axes),
            tuple(lets),
            tuple(one for one in where if one is not None),
            tuple(tensors),
            tuple(draws),
            self._cost(scope),
            scope,
        )

    def _name(self, name: syntax.Ident, spans: dict[str, Span]) -> bool:
        """Whether a name may be declared; spans remembers where each was."""
        if name.name in RESERVED:
            self._problems.report("D2K0302", name.span, name=name.name, reason="`when` speaks of hardware by it")
            return False
        if name.name in spans:
            note = Note("declared here first", spans[name.name])
            self._problems.report("D2K0301", name.span, name=name.name, note=note)
            return False
        spans[name.name] = name.span
        return True

    def _axis(self, node: syntax.Axis, scope: Scope, spans: dict[str, Span]) -> Iterable[AxisDeclaration]:
        if not self._name(node.name, spans):
            return
        kind = Type.INT if node.type is None else AXIS_TYPES.get(node.type.name)
        if kind is None:
            assert node.type is not None
            self._problems.report_unknown("D2K0508", node.type.span, node.type.name, AXIS_TYPES, kind="axis")
            scope.wrong.add(node.name.name)
        scope.types[node.name.name] = kind or Type.INT
        role = node.role.name if node.role else ""
        yield AxisDeclaration(node.name.name, kind, role, node.name.span)

    def _let(self, node: syntax.Let, scope: Scope, spans: dict[str, Span]) -> Iterable[LetDeclaration]:
        allowed = self._name(node.name, spans)
        value = self._typing.expression(node.value, scope, tuple(AXIS_TYPES.values()), f"`{node.name.name}`")
        if not allowed:
            return
        if value is None:
            scope.wrong.add(node.name.name)
            return
        scope.types[node.name.name] = value.type
        yield LetDeclaration(node.name.name, value, node.name.span)

    def _condition(self, node: syntax.Where, scope: Scope) -> Typed | None:
        return self._typing.expression(node.condition, scope, (Type.BOOL,), "a condition")

    def _draws(self) -> tuple[list[Draw], dict[str, Span]]:
        """The draws, and for each drawn tensor where it is named."""
        tensors = {one.name.name: one for one in self._node.every(syntax.Tensor)}
        inputs = [name for name, one in tensors.items() if one.kind.name in (Direction.INPUT, Direction.INOUT)]
        found: list[Draw] = []
        drawn: dict[str, Span] = {}
        for node in self._node.every(syntax.Draw):
            for name in node.tensors:
                if name.name not in inputs:
                    self._problems.report_unknown("D2K0305", name.span, name.name, inputs, kind="input")
                elif name.name in drawn:
                    note = Note("drawn here first", drawn[name.name])
                    self._problems.report("D2K0511", name.span, name=name.name, note=note)
                drawn.setdefault(name.name, name.span)
            function = self._python(node.maker)
            if function is not None:
                found.append(Draw(tuple(one.name for one in node.tensors), function))
        return found, drawn

    def _tensor(
        self, node: syntax.Tensor, scope: Scope, drawn: Mapping[str, Span]
    ) -> tuple[TensorDeclaration | None, list[Draw]]:
        before = self._problems.errors
        direction, name = Direction(node.kind.name), node.name.name
        dtype, container = self._element(node.type)
        shape = [
            self._typing.expression(one, scope, (Type.INT,), f"an extent of `{name}`") for one in node.type.shape or ()
        ]
        self._check_clauses(node, direction)
        moves = self._typing.expression(node.moves, scope, (Type.INT,), "`moves`") if node.moves else None
        contents: Contents | None = None
        draws: list[Draw] = []
        filled = direction in (Direction.INPUT, Direction.INOUT)
        if node.distribution is not None and name in drawn:
            self._problems.report("D2K0511", node.distribution.span, name=name, note=Note("drawn here", drawn[name]))
        elif isinstance(node.distribution, syntax.FileSymbol):
            function = self._python(node.distribution)
            draws = [Draw((name,), function)] if function else []
        elif node.distribution is not None:
            contents = resolve_contents(node.distribution, self._typing, scope)
        elif filled and name not in drawn:
            self._problems.report("D2K0510", node.name.span, absent=("draw",), name=name)
        if self._problems.errors > before or dtype is None or any(one is None for one in shape):
            return None, draws
        return (
            TensorDeclaration(
                name,
                direction,
                dtype,
                container,
                tuple(one for one in shape if one is not None),
                node.role.name if node.role else "",
                node.constant,
                contents,
                moves,
                node.name.span,
                node.type.span,
            ),
            draws,
        )

    def _element(self, node: syntax.TensorType) -> tuple[str | None, str]:
        """Element type and container, "" without one."""
        name = node.element.name
        if name not in DTYPES:
            self._problems.report_unknown("D2K0505", node.element.span, name, DTYPES)
            return None, ""
        if node.container is None:
            if DTYPES[name].bits < 8:
                self._problems.report("D2K0506", node.span, name=name)
            return name, ""
        container = node.container.name
        if container not in CONTAINERS or per_container(name, container) < 2:
            known = [one for one in CONTAINERS if per_container(name, one) > 1]
            self._problems.report(
                "D2K0507", node.container.span, container=container, name=name, known=", ".join(known) or "none"
            )
        return name, container

    def _check_clauses(self, node: syntax.Tensor, direction: Direction) -> None:
        wrong: list[tuple[Span, str, str]] = []
        if node.distribution is not None and direction in (Direction.OUTPUT, Direction.INTERMEDIATE):
            wrong.append((node.distribution.span, "distribution", "the kernel makes its contents"))
        if node.constant and direction is not Direction.INPUT:
            wrong.append((node.name.span, "`constant`", "only an input can stay the same from call to call"))
        if node.moves is not None and direction is Direction.INTERMEDIATE:
            wrong.append((node.moves.span, "`moves`", "an intermediate must not cross global memory"))
        if node.moves is not None and node.type.shape is None:
            wrong.append((node.moves.span, "`moves`", "a scalar is passed by value"))
        if node.type.shape is None and direction is not Direction.INPUT:
            wrong.append((node.type.span, "scalar type", f"write `{node.type.element.name}[1]`"))
        for span, clause, reason in wrong:
            self._problems.report("D2K0509", span, direction=direction, clause=clause, reason=reason)

    # ---- cost --------------------------------------------------------------------------------------------------------

    def _cost(self, scope: Scope) -> CostDeclaration:
        node = self._node.first(syntax.Cost)
        if node is None:
            return _EMPTY_COST
        flops: dict[str, Typed] = {}
        others: dict[str, Typed] = {}
        for line in node.lines:
            kind = line.kind.name
            typed = self._typing.expression(line.value, scope, (Type.INT,), f"`{kind}`")
            if kind == "flops":
                engine = self._engine(line)
                if engine in flops:
                    self._problems.report("D2K0301", line.span, name=f"flops on {engine}")
                elif engine and typed is not None:
                    flops[engine] = typed
                continue
            if line.engine is not None:
                self._problems.report("D2K0503", line.engine.span, problem=f"`{kind}` runs on no engine")
            if kind in others:
                self._problems.report("D2K0301", line.span, name=kind)
            elif typed is not None:
                others[kind] = typed
        if not any(line.kind.name == "flops" for line in node.lines):
            self._missing(node.span, "task", self._node.name.name, "flops")
        return CostDeclaration(
            tuple(flops.items()), others.get("bytes"), others.get("flops_min"), others.get("bytes_min")
        )

    def _engine(self, line: syntax.CostLine) -> str:
        if line.engine is None:
            problem = "`flops` needs the engine that it runs on"
            self._problems.report("D2K0503", line.span, help="write `on tensor.bf16`", problem=problem)
            return ""
        if line.engine.name not in ENGINES:
            self._problems.report_unknown("D2K0324", line.engine.span, line.engine.name, ENGINES)
            return ""
        return line.engine.name

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def _judgements(self, declared: Declarations) -> tuple[tuple[Tolerance, ...], tuple[Compare, ...]]:
        """Every output is judged once, by a tolerance or by a comparison."""
        nodes = self._node.every(syntax.Tensor)
        outputs = {
            one.name.name: one.name.span for one in nodes if one.kind.name in (Direction.OUTPUT, Direction.INOUT)
        }
        if not outputs:
            self._missing(self._node.name.span, "task", self._node.name.name, "output")
        judged: dict[str, Span] = {}
        tolerances = []
        for node in self._node.every(syntax.Tolerance):
            self._judge(node.output, outputs, judged)
            tolerance = self._tolerance(node)
            if tolerance is not None:
                tolerances.append(tolerance)
        compares = []
        for compare in self._node.every(syntax.Compare):
            for output in compare.outputs:
                self._judge(output, outputs, judged)
            function = self._python(compare.judge)
            if function is not None:
                because = compare.because.value if compare.because else ""
                compares.append(Compare(tuple(one.name for one in compare.outputs), function, because))
        for name, span in outputs.items():
            if name not in judged:
                help = f'add `tolerance {name} {{ atol = …, rtol = … }} because "…"` or `compare {name} with …`'
                self._problems.report("D2K0327", span, help=help, absent=("tolerance", "compare"), name=name)
        return tuple(tolerances), tuple(compares)

    def _judge(self, output: syntax.Ident, outputs: Mapping[str, Span], judged: dict[str, Span]) -> None:
        if output.name not in outputs:
            self._problems.report_unknown("D2K0305", output.span, output.name, outputs, kind="output")
        elif output.name in judged:
            note = Note("judged here first", judged[output.name])
            self._problems.report("D2K0328", output.span, name=output.name, note=note)
        judged.setdefault(output.name, output.span)

    def _tolerance(self, node: syntax.Tolerance) -> Tolerance | None:
        before = self._problems.errors
        values: dict[str, float] = {}
        for setting in node.settings:
            name = setting.name.name
            if name not in _TOLERANCE_LIMITS:
                self._problems.report_unknown("D2K0325", setting.name.span, name, _TOLERANCE_LIMITS)
                continue
            if name in values:
                self._problems.report("D2K0301", setting.name.span, name=name)
            wanted = (Type.INT,) if name in ("max_ulp", "slab_rows") else _NUMBERS
            typed = self._typing.expression(setting.value, Scope(), wanted, f"`{name}`")
            value = None if typed is None else self._typing.evaluated(typed, {}, "")
            if not isinstance(value, int | float):
                continue
            low, high = _TOLERANCE_LIMITS[name]
            if not low <= value <= high:
                problem = f"`{name}` must be between {low:g} and {high:g}, not {value:g}"
                self._problems.report("D2K0513", setting.value.span, problem=problem)
            values[name] = value
        if node.because is None:
            self._missing(node.output.span, "tolerance", node.output.name, "because")
        if not node.settings:
            self._missing(node.output.span, "tolerance", node.output.name, "atol")
        if self._problems.errors > before or node.because is None:
            return None
        return Tolerance(
            node.output.name,
            node.because.value,
            atol=float(values.get("atol", 0.0)),
            rtol=float(values.get("rtol", 0.0)),
            matched=float(values.get("matched", 1.0)),
            max_ulp=int(values["max_ulp"]) if "max_ulp" in values else None,
            relative_rms=float(values["relative_rms"]) if "relative_rms" in values else None,
            slab_rows=int(values.get("slab_rows", 0)),
        )

    # ---- Python files ------------------------------------------------------------------------------------------------

    def _baselines(self) -> tuple[Baseline, ...]:
        found: dict[str, Baseline] = {}
        for node in self._node.every(syntax.Baseline):
            if node.name.name in found:
                self._problems.report("D2K0301", node.name.span, name=node.name.name)
                continue
            function = self._python(node.target)
            if function is not None:
                found[node.name.name] = Baseline(node.name.name, function)
        named = {node.name.name for node in self._node.every(syntax.Baseline)}
        if "eager" not in named and self._node.first(syntax.Reference) is not None:
            self._problems.report("D2K0804", self._node.name.span, absent=("baseline",), name=self._node.name.name)
        return tuple(found.values())

    def _function(self, node: syntax.Reference | None) -> PythonFunction | None:
        return self._python(node.target) if node else None

    def _python(self, node: syntax.FileSymbol) -> PythonFunction | None:
        """A function of a Python file beside the task; the file and the function must exist."""
        path = node.file.value
        if not _PYTHON_PATH.fullmatch(path):
            self._problems.report("D2K0912", node.file.span, path=path)
            return None
        if self._folder is not None:
            text = self._text(path)
            if text is None:
                self._problems.report("D2K0911", node.file.span, path=path)
                return None
            if not re.search(_DEFINITION.format(name=re.escape(node.symbol.name)), text, re.MULTILINE):
                self._problems.report("D2K0913", node.symbol.span, path=path, name=node.symbol.name)
                return None
        return PythonFunction(path, node.symbol.name, docstring(self._texts.get(path, ""), node.symbol.name))

    def _text(self, path: str) -> str | None:
        """The text of a file beside the task, whose hash is kept; None if it cannot be read."""
        if path not in self._texts and self._folder is not None:
            try:
                data = (self._folder / path).read_bytes()
            except OSError:
                return None
            self._sources[path] = sha256(data).hexdigest()
            self._texts[path] = data.decode("utf-8", "replace")
        return self._texts.get(path)

    def _report_unused(self, declared: Declarations) -> None:
        used = declared.scope.used
        guidance = self._node.first(syntax.Guidance)
        if guidance is not None:
            for node in syntax.walk(guidance):
                if isinstance(node, syntax.Name):
                    used.add(node.name)
        for axis in declared.axes:
            # The function of a `draw` gets all axes.
            if axis.name not in used and not axis.role and not declared.draws:
                self._problems.report("D2K0801", axis.span, absent=(axis.name,), kind="axis", name=axis.name)
        for let in declared.lets:
            if let.name not in used:
                self._problems.report("D2K0801", let.span, absent=(let.name,), kind="let", name=let.name)


_NECESSARY: tuple[tuple[type[syntax.Node], str], ...] = (
    (syntax.Title, "title"),
    (syntax.Summary, "summary"),
    (syntax.Target, "target"),
    (syntax.Entry, "entry"),
    (syntax.Cost, "cost"),
    (syntax.Workload, "workload"),
)
_TOLERANCE_LIMITS: Mapping[str, tuple[float, float]] = {
    "atol": (0.0, 1e30),
    "rtol": (0.0, 1.0),
    "matched": (0.5, 1.0),
    "max_ulp": (0, 2**31),
    "relative_rms": (0.0, 1.0),
    "slab_rows": (1, 2**31),
}
_PYTHON_PATH = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_-]*/)*[A-Za-z0-9_][A-Za-z0-9_-]*\.py")
_DEFINITION = r"^(?:async\s+)?(?:def|class)\s+{name}\b|^{name}\s*(?::[^=\n]+)?=|^(?:from\s.+\s)?import\s.*\b{name}\b"


def _cost_record(cost: CostDeclaration) -> Cost:
    def text(typed: Typed | None) -> str:
        return typed.text if typed else ""

    flops = tuple(Flops(engine, typed.text) for engine, typed in cost.flops)
    return Cost(flops, text(cost.bytes), text(cost.flops_min), text(cost.bytes_min))


def content_hash(task: Task) -> str:
    """SHA-256 over the meaning of a task: its compiled form without the hash."""
    return sha256(
        msgspec.json.encode(msgspec.structs.replace(task, content_hash=""), order="deterministic")
    ).hexdigest()
