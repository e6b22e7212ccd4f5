"""What was found for an item, and what is lacking, in a few words with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from d2k.analyzers.checks import CheckValue, FilterValue, ItemValue, TermValue, as_tuple
from d2k.spec.audit import TermAudit
from d2k.spec.check import Op
from d2k.spec.check_text import render, render_filter
from d2k.spec.finding import Evidence, FoundValue, Reason, Status, Why
from d2k.spec.vocabulary import vocabulary

_MOST_TEXTS = 3
"""Pieces of evidence that are put into the words of one term."""


def achieved(value: ItemValue) -> str:
    """What an implemented item rests on: the numbers that were asked for, else what the evidence shows."""
    terms = [term for term in value.worst.decisive if not term.guard and term.instance is not None]
    return _joined(_achieved_term(term, value.configs) for term in terms)


def lacking(value: ItemValue) -> str:
    """What is wanted and not there, or not known."""
    met = sum(one.interval.low == 1 for one in value.configs)
    text = _joined(one.detail for one in shortfalls(value))
    return f"in {met} of {len(value.configs)} configurations; elsewhere {text}" if met else text


def shortfalls(value: ItemValue) -> tuple[Why, ...]:
    """A reason with evidence for each term on which credit was lost, in the configuration that sets the lower end."""
    return tuple(why for term in value.worst.decisive for why in _shortfalls(term))


def _shortfalls(value: TermValue) -> Iterable[Why]:
    if value.guard:
        if value.interval.high == 1:
            certain = value.interval.low == 1
            detail = f"{'has' if certain else 'may have'} {render(value.term)}, which the check rules out"
            yield Why(Reason.WRONG_PARAMETER if certain else Reason.NOT_ANALYZABLE, detail, _evidence(value))
        return
    if value.instance is None:
        yield _absent(value)
        return
    for one in value.filters:
        if one.holds is False:
            yield Why(Reason.WRONG_PARAMETER, wrong(one), value.instance.evidence)
        elif one.holds is None:
            detail = f"{one.filter.attribute} is not known: {one.unknown}"
            yield Why(Reason.NOT_ANALYZABLE, detail, value.instance.evidence)


def _absent(value: TermValue) -> Why:
    """The detector's own reason; a reason without words gets the property's title."""
    declared = vocabulary().get(value.term.property)
    title = declared.title if declared is not None else value.term.property
    unknown = value.observed.status is Status.UNKNOWN
    why = value.observed.why or Why(Reason.NOT_ANALYZABLE if unknown else Reason.NO_TRACE)
    if why.detail:
        return why
    seen = why.evidence[0].text if why.evidence else ""
    nothing = f"{_lower(title)}: not decided" if unknown else f"no trace of {_lower(title)}"
    return Why(why.reason, seen or nothing, why.evidence)


def wrong(one: FilterValue) -> str:
    """`stages 2, needs stages >= 3`; of a set only the members that are missing."""
    wanted = one.filter
    found = f"{wanted.attribute} {found_text(one.found)}" if one.found is not None else f"no {wanted.attribute}"
    if wanted.op is Op.HAS and one.found is not None:
        missing = [str(value) for value in wanted.values if value not in as_tuple(one.found)]
        if missing:
            return f"{found}, needs {' and '.join(missing)}"
    return f"{found}, needs {render_filter(wanted)}"


def audited_terms(value: CheckValue) -> tuple[TermAudit, ...]:
    """Every term of a check beside what was found for it."""
    return tuple(
        TermAudit(
            text=f"not {render(term.term)}" if term.guard else render(term.term),
            status=term.observed.status,
            credit=term.interval,
            found=_found(term),
        )
        for term in value.terms
    )


def merged(groups: Iterable[Sequence[Evidence]]) -> tuple[Evidence, ...]:
    """Pieces of evidence, each once, in the order of their places."""
    found = dict.fromkeys(one for group in groups for one in group)
    return tuple(sorted(found, key=lambda one: (one.path, one.line, one.end_line)))


def found_text(value: FoundValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "{" + ", ".join(value) + "}" if isinstance(value, tuple) else str(value)


def _achieved_term(term: TermValue, configs: Sequence[CheckValue]) -> str:
    numbers = [one for one in term.filters if isinstance(one.found, int) and not isinstance(one.found, bool)]
    if numbers:
        return ", ".join(
            f"{one.filter.attribute} {_over_configs(term, one.filter.attribute, configs)}" for one in numbers
        )
    texts = list(dict.fromkeys(one.text for one in _evidence(term) if one.text))
    if texts:
        return "; ".join(texts[:_MOST_TEXTS])
    declared = vocabulary().get(term.term.property)
    return _lower(declared.title) if declared is not None else term.term.property


def _over_configs(term: TermValue, attribute: str, configs: Sequence[CheckValue]) -> str:
    """The values of an attribute in all configurations: `128` or `{64, 128}`."""
    same_term = [other for config in configs for other in config.terms if other.term == term.term]
    values = {
        other.instance.attributes[attribute]
        for other in same_term
        if other.instance is not None and attribute in other.instance.attributes
    }
    numbers = sorted(value for value in values if isinstance(value, int))
    return str(numbers[0]) if len(numbers) == 1 else "{" + ", ".join(str(one) for one in numbers) + "}"


def _found(term: TermValue) -> str:
    if term.instance is None:
        why = term.observed.why
        return why.detail if why is not None else ""
    known = [f"{name} {found_text(value)}" for name, value in term.instance.attributes.items()]
    return ", ".join(known + [f"{name} not known: {reason}" for name, reason in term.instance.undecided.items()])


def _evidence(term: TermValue) -> tuple[Evidence, ...]:
    return term.instance.evidence if term.instance is not None else ()


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _lower(title: str) -> str:
    """A title inside a sentence: `Online softmax` as `online softmax`, but `TMA bulk copy` as it is."""
    return title if title[1:2].isupper() or title[1:2].isdigit() else title[:1].lower() + title[1:]
