"""From the text of a `.d2k` file to a validated task: parse, resolve, type, evaluate."""

from __future__ import annotations

from pathlib import Path

import msgspec

from d2k.compiler import syntax
from d2k.compiler.checks import CheckScope
from d2k.compiler.diagnostics import Diagnostic, Note, Severity
from d2k.compiler.guidance import GuidanceResolver
from d2k.compiler.modules import Module, ModuleLoader
from d2k.compiler.parse import Parsed, parse, parse_bytes
from d2k.compiler.problems import Problems
from d2k.compiler.resolve import TaskResolver, content_hash
from d2k.compiler.source import Source, Span
from d2k.compiler.types import Scope, Typing
from d2k.spec.task import Task
from d2k.spec.vocabulary import Vocabulary, vocabulary

# Mistakes that the values of a workload bring out; the same one in several workloads is told once.
_PER_WORKLOAD = "D2K06"


class Compiled(msgspec.Struct, frozen=True):
    """What became of one file. `task` is None if there is an error or the file holds no task."""

    source: Source
    task: Task | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not any(one.severity is Severity.ERROR for one in self.diagnostics)


def load_task(source: Path | str, words: Vocabulary | None = None) -> Compiled:
    """The task of a file or, for a text with line ends, of that text. Anything but one task is a diagnostic.

    Raises `OSError` for a file that cannot be read.
    """
    if isinstance(source, str) and "\n" in source:
        return compile_text(source, "<text>", words=words)
    path = Path(source)
    return compile_parsed(parse_bytes(path.read_bytes(), str(path)), path.parent, words)


def compile_text(text: str, path: str, folder: Path | None = None, words: Vocabulary | None = None) -> Compiled:
    """The task of a text. `folder` is where its modules and Python files lie; without one they are not looked for."""
    return compile_parsed(parse(text, path), folder, words)


def compile_parsed(parsed: Parsed, folder: Path | None = None, words: Vocabulary | None = None) -> Compiled:
    """The task of a parsed file."""
    problems = Problems(parsed.lost)
    found = _check(parsed, folder, words or vocabulary(), problems)
    tasks = parsed.tree.every(syntax.Task)
    if not tasks and not problems.errors and not _errors(parsed.diagnostics):
        problems.report("D2K0914", Span(0, 0, parsed.source), problem="the file declares no task")
    for extra in tasks[1:]:
        problems.report("D2K0914", extra.name.span, problem="the file declares a second task")
    diagnostics = _in_order(parsed.diagnostics, problems.found)
    task = found[0] if len(found) == 1 and not _errors(diagnostics) else None
    if task is not None:
        from d2k.compiler.prompt import prompt_hashes  # the only part that a mere check does not need

        task = msgspec.structs.replace(task, prompts=prompt_hashes(task))
        task = msgspec.structs.replace(task, content_hash=content_hash(task))
    return Compiled(parsed.source, task, diagnostics)


def check_parsed(parsed: Parsed, folder: Path | None = None, words: Vocabulary | None = None) -> tuple[Diagnostic, ...]:
    """The diagnostics of any file: tasks, patterns, properties and functions."""
    problems = Problems(parsed.lost)
    _check(parsed, folder, words or vocabulary(), problems)
    return _in_order(parsed.diagnostics, problems.found)


def to_json(task: Task) -> bytes:
    """The task as indented JSON that validates against `spec/schemas/task.json`; equal tasks give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(task), indent=2) + b"\n"


def _check(parsed: Parsed, folder: Path | None, words: Vocabulary, problems: Problems) -> list[Task]:
    loader = ModuleLoader(problems)
    module = loader.module(parsed.tree, folder, parsed.source.path)
    typing = Typing(problems, loader.functions)
    properties = parsed.tree.every(syntax.Property)
    if properties:
        from d2k.compiler.vocabulary import compile_vocabulary

        words = compile_vocabulary(properties, problems, words)
    for pattern in parsed.tree.every(syntax.Pattern):
        _check_pattern(pattern, module, typing, words)
    tasks = [TaskResolver(node, module, typing, words, folder).task() for node in parsed.tree.every(syntax.Task)]
    _report_unused_modules(parsed.tree, module, problems)
    return [task for task in tasks if task is not None]


def _check_pattern(pattern: syntax.Pattern, module: Module, typing: Typing, words: Vocabulary) -> None:
    resolver = GuidanceResolver(typing, words, CheckScope(None), Scope())
    resolver.check_pattern(pattern, module)


def _report_unused_modules(tree: syntax.File, module: Module, problems: Problems) -> None:
    heads = {node.pattern.parts[0].name for node in syntax.walk(tree) if isinstance(node, syntax.Include)}
    called = {node.function.name for node in syntax.walk(tree) if isinstance(node, syntax.Call)}
    for use in tree.every(syntax.Use):
        name = use.alias or use.module.parts[-1]
        used = module.uses.get(name.name)
        if used is None or name.name in heads:
            continue
        if not called & {node.name.name for node in used.tree.every(syntax.Function)}:
            problems.report("D2K0801", use.module.span, absent=("include",), kind="module", name=use.module.name)


def _errors(diagnostics: tuple[Diagnostic, ...]) -> bool:
    return any(one.severity is Severity.ERROR for one in diagnostics)


def _in_order(syntactic: tuple[Diagnostic, ...], semantic: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By place, those of the file itself first as they come; what every workload repeats is told once."""
    kept: dict[tuple[str, str, int, int, str], Diagnostic] = {}
    for one in (*syntactic, *semantic):
        told = "" if one.code.startswith(_PER_WORKLOAD) else one.message
        key = (one.code, one.span.path, one.span.start, one.span.end, told)
        if key not in kept:
            kept[key] = one
        elif told == "" and one.message != kept[key].message:
            kept[key] = _also(kept[key], one)
    return tuple(sorted(kept.values(), key=lambda one: (one.span.path, one.span.start, one.span.end, one.code)))


def _also(first: Diagnostic, other: Diagnostic) -> Diagnostic:
    return msgspec.structs.replace(first, notes=(*first.notes, Note(f"also {other.message}")))
