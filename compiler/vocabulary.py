"""From property declarations to the vocabulary. `python -m d2k.compiler.vocabulary` rewrites `spec/vocabulary.json`."""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import msgspec

from d2k.compiler import syntax
from d2k.compiler.checks import CheckScope, CheckTyping
from d2k.compiler.diagnostics import Note, Severity
from d2k.compiler.modules import LANGUAGE_VERSION
from d2k.compiler.parse import parse
from d2k.compiler.problems import Problems
from d2k.compiler.text import prose
from d2k.spec.check import Term
from d2k.spec.hardware import FEATURES
from d2k.spec.vocabulary import Attribute, Level, Property, Tier, Vocabulary

SCHEMA = "d2k.vocabulary/1"
SCOPES = ("kernel", "program")
ATTRIBUTE_TYPES = ("int", "bool", "str", "role", "enum", "set")
LANGUAGES = ("triton", "cuda")
_WITH_MEMBERS = ("enum", "set")
_WITHOUT_MEMBERS = ("int", "bool", "str")

_NECESSARY: tuple[tuple[type[syntax.Node], str], ...] = (
    (syntax.Title, "title"),
    (syntax.Definition, "definition"),
    (syntax.Scope, "scope"),
    (syntax.SettledBy, "settled by"),
)


def compile_vocabulary(
    nodes: tuple[syntax.Property, ...], problems: Problems, known: Vocabulary | None = None
) -> Vocabulary:
    """The vocabulary that property declarations make, each property with what is right of it.

    Properties of `known` may be named by `implies` and `excludes`, and remain unless a declaration replaces them.
    """
    declared: dict[str, syntax.Property] = {}
    for node in nodes:
        if node.name.name in declared:
            first = Note("declared here first", declared[node.name.name].name.span)
            problems.report("D2K0301", node.name.span, name=node.name.name, note=first)
        declared.setdefault(node.name.name, node)
    bare = {name: _property(node, problems) for name, node in declared.items()}
    others = tuple(one for one in (known.properties if known else ()) if one.id not in bare)
    words = Vocabulary(SCHEMA, LANGUAGE_VERSION, "", (*bare.values(), *others))
    typing = CheckTyping(problems, words)
    whole = [_with_relations(bare[name], node, typing, bare, others, problems) for name, node in declared.items()]
    vocabulary = Vocabulary(SCHEMA, LANGUAGE_VERSION, "", (*whole, *others))
    return msgspec.structs.replace(vocabulary, content_hash=content_hash(vocabulary))


def content_hash(vocabulary: Vocabulary) -> str:
    """SHA-256 over everything but the hash itself."""
    bare = msgspec.structs.replace(vocabulary, content_hash="")
    return sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest()


def to_json(vocabulary: Vocabulary) -> bytes:
    """The vocabulary as it stands in `vocabulary.json`."""
    return msgspec.json.format(msgspec.json.encode(vocabulary), indent=1) + b"\n"


def _property(node: syntax.Property, problems: Problems) -> Property:
    """A property without `implies` and `excludes`, which need all others."""
    name = node.name.name
    for kind, statement in _NECESSARY:
        if node.first(kind) is None:
            problems.report(
                "D2K0326", node.name.span, absent=statement.split(), owner="property", name=name, statement=statement
            )
    title, definition = node.first(syntax.Title), node.first(syntax.Definition)
    scope, settled, needs = node.first(syntax.Scope), node.first(syntax.SettledBy), node.first(syntax.Needs)
    if scope is not None:
        _known(scope.scope, SCOPES, "scope", problems)
    tiers = [one.name for one in settled.tiers if _known(one, tuple(Tier), "tier", problems)] if settled else []
    features = [one.name for one in needs.features if _feature(one, problems)] if needs else []
    attributes: dict[str, Attribute] = {}
    for one in node.every(syntax.Attribute):
        if one.name.name in attributes:
            problems.report("D2K0301", one.name.span, name=one.name.name)
        attributes.setdefault(one.name.name, _attribute(one, problems))
    evidence: dict[str, str] = {}
    for sentence in node.every(syntax.Evidence):
        _known(sentence.language, LANGUAGES, "language", problems)
        if sentence.language.name in evidence:
            problems.report("D2K0301", sentence.language.span, name=sentence.language.name)
        evidence.setdefault(sentence.language.name, prose(sentence.text.value))
    return Property(
        id=name,
        level=Level(node.level.name),
        title=title.text.value if title else "",
        definition=prose(definition.text.value) if definition else "",
        scope=scope.scope.name if scope else SCOPES[0],
        needs=tuple(features),
        settled_by=tuple(Tier(one) for one in tiers),
        attributes=tuple(attributes.values()),
        aliases=tuple(text.value for alias in node.every(syntax.Alias) for text in alias.texts),
        evidence=evidence,
    )


def _attribute(node: syntax.Attribute, problems: Problems) -> Attribute:
    kind, members = node.type.kind, node.type.members
    if _known(kind, ATTRIBUTE_TYPES, "attribute type", problems):
        if members is None and kind.name in _WITH_MEMBERS:
            problems.report("D2K0702", node.type.span, kind=kind.name, problem="lists its members in braces")
        elif members is not None and kind.name in _WITHOUT_MEMBERS:
            problems.report("D2K0702", node.type.span, kind=kind.name, problem="has no members")
    names: list[str] = []
    for one in members or ():
        if one.name in names:
            problems.report("D2K0301", one.span, name=one.name)
        else:
            names.append(one.name)
    definition = prose(node.definition.value) if node.definition else ""
    return Attribute(node.name.name, kind.name, tuple(names), definition)


def _with_relations(
    bare: Property,
    node: syntax.Property,
    typing: CheckTyping,
    declared: dict[str, Property],
    others: tuple[Property, ...],
    problems: Problems,
) -> Property:
    implies: list[Term] = []
    for one in node.every(syntax.Implies):
        if one.term.property.name == bare.id:
            problems.report("D2K0703", one.term.span, name=bare.id, how="implies")
            continue
        term = typing.term(one.term, CheckScope(None), None)
        if term is not None:
            implies.append(term)
    excludes: list[str] = []
    known = (*declared, *(other.id for other in others))
    for name in (name for statement in node.every(syntax.Excludes) for name in statement.properties):
        if name.name == bare.id:
            problems.report("D2K0703", name.span, name=bare.id, how="excludes")
        elif name.name not in known:
            problems.report_unknown("D2K0312", name.span, name.name, known)
        else:
            excludes.append(name.name)
    return msgspec.structs.replace(bare, implies=tuple(implies), excludes=tuple(excludes))


def _known(name: syntax.Ident, known: tuple[str, ...], kind: str, problems: Problems) -> bool:
    if name.name in known:
        return True
    problems.report_unknown("D2K0701", name.span, name.name, known, kind=kind)
    return False


def _feature(name: syntax.Ident, problems: Problems) -> bool:
    if name.name in FEATURES:
        return True
    problems.report_unknown("D2K0307", name.span, name.name, FEATURES)
    return False


def compile_source() -> tuple[Vocabulary, Problems]:
    """The vocabulary of `spec/vocabulary.d2k` with what is wrong in it."""
    path = Path(str(files("d2k.spec").joinpath("vocabulary.d2k")))
    parsed = parse(path.read_text(encoding="utf-8"), str(path))
    problems = Problems()
    for one in parsed.diagnostics:
        problems.add(one)
    return compile_vocabulary(parsed.tree.every(syntax.Property), problems), problems


def main() -> int:
    vocabulary, problems = compile_source()
    for one in problems.found:
        print(f"{one.span.path}:{one.span.line}:{one.span.column}: {one.severity}[{one.code}]: {one.message}")
    if any(one.severity is Severity.ERROR for one in problems.found):
        return 1
    Path(str(files("d2k.spec").joinpath("vocabulary.json"))).write_bytes(to_json(vocabulary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
