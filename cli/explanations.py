"""What `d2kc explain` prints, as plain text that reads well on a terminal and in a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from textwrap import indent, wrap

from d2k.analyzers.core.detector import Example
from d2k.analyzers.guards.run import GUARDS
from d2k.cli.failure import InputError
from d2k.cli.tasks import known_tasks, load
from d2k.cli.terms import TERMS
from d2k.compiler.diagnostics import CODES
from d2k.spec.check import Check, terms
from d2k.spec.finding import Status
from d2k.spec.task import Task
from d2k.spec.vocabulary import Attribute, Level, Property, vocabulary

WIDTH = 96
_SHOWN = 6


def explanation(what: str | None) -> str:
    """The text for `what`. Raises InputError if nothing is called so."""
    if what is None:
        return "\n".join(_contents())
    prop = vocabulary().get(what) or next(
        (one for one in vocabulary().properties if what.lower() in map(str.lower, one.aliases)), None
    )
    if prop is not None:
        return "\n".join(_property(prop))
    if what.upper() in CODES:
        from d2k.compiler.diagnostics import explain

        return explain(what.upper()) or ""
    if what in GUARDS:
        return "\n".join(_guard(what))
    if what in known_tasks():
        return "\n".join(_task(load(what)))
    term = what.lower().replace(" ", "_")
    if term in TERMS:
        return "\n".join([term.replace("_", " "), "", *wrap(TERMS[term], WIDTH)])
    known = [*TERMS, *(one.id for one in vocabulary().properties), *CODES, *known_tasks(), *GUARDS]
    known += [alias for one in vocabulary().properties for alias in one.aliases]
    near = [one for one in known if what.lower() in re.split(r"[\W_]", one.lower())][:_SHOWN]
    near = near or get_close_matches(what, known, n=3)
    hint = f"Did you mean {', '.join(f'`{one}`' for one in near)}?" if near else "`d2kc explain` lists what there is."
    raise InputError(f"nothing is called `{what}`. {hint}")


def _contents() -> Iterator[str]:
    for level in Level:
        yield f"{level} properties"
        yield from _columns([one.id for one in vocabulary().properties if one.level is level])
        yield ""
    yield "Guards"
    yield from _columns(list(GUARDS))
    yield "\nTasks"
    yield from _columns(list(known_tasks()))
    yield "\nWords of an audit, and the reasons why something is missing"
    yield from _columns(list(TERMS))
    yield f"\nDiagnostics: {len(CODES)} codes, {min(CODES)} to {max(CODES)}; `d2kc explain {min(CODES)}`"


def _columns(names: list[str]) -> Iterator[str]:
    width = max(map(len, names), default=0) + 2
    per_line = max(1, (WIDTH - 2) // width)
    for start in range(0, len(names), per_line):
        yield "  " + "".join(name.ljust(width) for name in names[start : start + per_line]).rstrip()


def _property(prop: Property) -> Iterator[str]:
    yield f"{prop.id}  ({prop.level})  {prop.title}"
    yield ""
    yield from wrap(prop.definition, WIDTH)
    yield ""
    yield f"  scope        {prop.scope}"
    yield f"  hardware     {', '.join(prop.needs) or 'any'}"
    yield f"  settled by   {', '.join(prop.settled_by)}"
    if prop.aliases:
        yield f"  also called  {', '.join(prop.aliases)}"
    if prop.attributes:
        yield "\nAttributes"
        yield from (_attribute(one) for one in prop.attributes)
    for language, text in prop.evidence.items():
        yield f"\nEvidence in {language}"
        yield from wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
    wanted = _wanted_by(prop.id)
    yield f"\nAsked for by {', '.join(wanted)}" if wanted else "\nNo task asks for it."
    if find_spec(f"d2k.analyzers.properties.{prop.id}") is None:
        yield "\nNo detector covers it yet: `d2kc analyze` answers `unknown`."
        return
    yield from _examples(import_module(f"d2k.analyzers.properties.{prop.id}").EXAMPLES)


def _attribute(attribute: Attribute) -> str:
    kind = attribute.type + (f"{{{', '.join(attribute.members)}}}" if attribute.members else "")
    return f"  {attribute.name} : {kind}" + (f"  {attribute.definition}" if attribute.definition else "")


def _examples(examples: tuple[Example, ...]) -> Iterator[str]:
    for one in examples:
        verdict = f"{one.status}" + (f", trap: {one.trap}" if one.status is not Status.PRESENT else "")
        found = ", ".join(f"{key} = {value}" for key, value in one.attributes.items())
        yield f"\nExample `{one.name}` in {one.language}: {verdict}" + (f" ({found})" if found else "")
        yield indent(one.code.strip(), "    ")


def _wanted_by(identifier: str) -> list[str]:
    return [name for name in known_tasks() if any(_uses(item.check, identifier) for item in load(name).guidance)]


def _uses(check: Check, identifier: str) -> bool:
    return any(term.property == identifier for term in terms(check))


def _guard(name: str) -> Iterator[str]:
    module = import_module(f"d2k.analyzers.guards.{name}")
    yield f"{name}  (guard)"
    yield ""
    yield from wrap(module.DEFINITION, WIDTH)
    yield from _examples(module.EXAMPLES)


def _task(task: Task) -> Iterator[str]:
    yield f"{task.id}  {task.title}"
    yield ""
    yield task.summary.rstrip()
    yield f"\nWorkloads: {', '.join(one.name for one in task.workloads if not one.held_out)}"
    yield f"Targets: {', '.join(task.target)}"
    yield "\nGuidance"
    for item in task.guidance:
        requires = f"  (requires {', '.join(item.requires)})" if item.requires else ""
        yield f"  {item.level} {item.id}{requires}"
        yield from wrap(item.title, WIDTH, initial_indent="     ", subsequent_indent="     ")
    yield f"\n`d2kc prompt {task.id}` prints the whole brief, `d2kc graph {task.id}` draws the guidance."
