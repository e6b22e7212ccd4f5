"""Evaluates checks over findings: how much of what a check asks for is there, as an interval of credit.

The rules: a term `P(f1 … fn)` earns 0 if P is absent and (1 + filters that hold) / (1 + n) if it is present; an
unknown P earns [0, 1], and an unknown filter counts 0 below and 1 above. `and` is the mean of its positive parts, `or`
the best part. The filters of a term must hold for one finding of one variant, and a whole check is evaluated per
variant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum

from d2k.analyzers.roles import Origins, Roles
from d2k.analyzers.submission import NOTHING, Observed, Submission, Variant
from d2k.spec.audit import Interval
from d2k.spec.check import AllKernels, And, AttributeValue, Check, Filter, Not, Op, Or, Term
from d2k.spec.finding import FoundValue, Instance, Reason, Status
from d2k.spec.vocabulary import vocabulary

NONE_OF_IT = Interval(0.0, 0.0)
ALL_OF_IT = Interval(1.0, 1.0)
ANYTHING = Interval(0.0, 1.0)

AXIS = "axis"
"""Attribute that names an axis: of an argument that is a tensor, one of its axes is meant."""


@dataclass(frozen=True, slots=True)
class FilterValue:
    """One filter against one finding: `holds` is None where that is unknown."""

    filter: Filter
    holds: bool | None
    found: FoundValue | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class TermValue:
    """One term in one variant. `instance` is the finding that serves it best; None if the property is not present."""

    term: Term
    variant: Variant
    observed: Observed
    interval: Interval
    instance: Instance | None = None
    filters: tuple[FilterValue, ...] = ()
    guard: bool = False


@dataclass(frozen=True, slots=True)
class CheckValue:
    """A check in one variant.

    `decisive` are the terms that the credit rests on: of an `or`, those of the best part. `contradicted`: a guard names
    something that is certainly there.
    """

    interval: Interval
    terms: tuple[TermValue, ...]
    decisive: tuple[TermValue, ...]
    contradicted: bool = False


@dataclass(frozen=True, slots=True)
class ItemValue:
    """A check over a whole submission.

    `configs` are its values in the configurations of the kernel that decides the credit; `worst` is the one of them
    that sets the lower end.
    """

    interval: Interval
    worst: CheckValue
    configs: tuple[CheckValue, ...]
    contradicted: bool = False


class Evaluator:
    """Evaluates checks over one submission; names in findings are translated by `roles` (None: there is no task)."""

    def __init__(self, submission: Submission, roles: Roles | None) -> None:
        self._submission = submission
        self._roles = roles

    def item(self, check: Check) -> ItemValue:
        """The credit of a check: over launched kernels the best; over the configurations of one, worst to best."""
        per_kernel = [
            [self.check(check, variant) for variant in kernel.configs] for kernel in self._submission.launched
        ] or [[self.check(check, NOTHING)]]
        everywhere = tuple(chain.from_iterable(per_kernel))
        intervals = [over_configs(one.interval for one in values) for values in per_kernel]
        total = best_of(intervals)
        deciding = max(
            range(len(per_kernel)),
            key=lambda at: (intervals[at].low, intervals[at].high, max(_nearness(one) for one in per_kernel[at])),
        )
        worst = min(per_kernel[deciding], key=lambda one: (one.interval.low, one.interval.high))
        contradicted = total.high == 0 and any(one.contradicted for one in everywhere)
        return ItemValue(total, worst, tuple(per_kernel[deciding]), contradicted)

    def holds(self, check: Check) -> bool | None:
        """Whether a condition is true of the submission; a `not` denies that any kernel has what it names."""
        positives, guards = split(check)
        answers: list[bool | None] = []
        if positives:
            answers.append(_truth(self.item(And(positives)).interval))
        answers.extend(_negation(self.holds(guard.part)) for guard in guards)
        if False in answers:
            return False
        return None if None in answers else True

    def check(self, check: Check, variant: Variant) -> CheckValue:
        """A check in one variant."""
        match check:
            case Term():
                value = self.term(check, variant)
                return CheckValue(value.interval, (value,), (value,))
            case Or(parts):
                values = [self.check(part, variant) for part in parts]
                interval = best_of(value.interval for value in values)
                best = max(values, key=lambda one: (one.interval.low, one.interval.high, _nearness(one)))
                contradicted = interval.high == 0 and any(value.contradicted for value in values)
                return CheckValue(interval, _terms(values), best.decisive, contradicted)
            case AllKernels(part):
                return self._all_kernels(part)
            case And() | Not():
                return self._guarded(check, variant)

    def _guarded(self, check: And | Not, variant: Variant) -> CheckValue:
        """The mean of the positive parts; nothing if a guard is broken, perhaps nothing if that is unknown."""
        positives, guards = split(check)
        parts = [self.check(part, variant) for part in positives]
        interval = mean_of([part.interval for part in parts]) if parts else ALL_OF_IT
        denied = [self.check(guard.part, variant) for guard in guards]
        broken = [_truth(value.interval) for value in denied]
        contradicted = True in broken or any(part.contradicted for part in parts)
        if contradicted:
            interval = NONE_OF_IT
        elif None in broken:
            interval = Interval(0.0, interval.high)
        guarding = tuple(_as_guard(term) for term in _terms(denied))
        decisive = tuple(term for part in parts for term in part.decisive)
        return CheckValue(interval, _terms(parts) + guarding, decisive + guarding, contradicted)

    def _all_kernels(self, part: Check) -> CheckValue:
        """The worst launched kernel counts; nothing if there is none."""
        kernels = self._submission.launched
        if not kernels:
            return self.check(part, NOTHING)
        values = [[self.check(part, variant) for variant in kernel.configs] for kernel in kernels]
        intervals = [over_configs(one.interval for one in configs) for configs in values]
        low = min(one.low for one in intervals)
        high = min(one.high for one in intervals)
        worst = min(chain.from_iterable(values), key=lambda one: (one.interval.low, one.interval.high))
        return CheckValue(Interval(low, high), worst.terms, worst.decisive, worst.contradicted and high == 0)

    def term(self, term: Term, variant: Variant) -> TermValue:
        """A term in one variant, by the finding that serves it best."""
        observed = self._submission.observe(term.property, variant)
        if observed.status is not Status.PRESENT:
            interval = ANYTHING if observed.status is Status.UNKNOWN else NONE_OF_IT
            return TermValue(term, variant, observed, interval)
        tried = [self._instance(term, variant, observed, instance) for instance in observed.instances]
        best = max(tried, key=lambda one: (one.interval.low, one.interval.high))
        return TermValue(term, variant, observed, best_of(one.interval for one in tried), best.instance, best.filters)

    def _instance(self, term: Term, variant: Variant, observed: Observed, instance: Instance) -> TermValue:
        filters = tuple(self._filter(term.property, one, variant, instance) for one in term.filters)
        true = sum(one.holds is True for one in filters)
        possible = sum(one.holds is not False for one in filters)
        whole = 1 + len(filters)
        interval = Interval((1 + true) / whole, (1 + possible) / whole)
        return TermValue(term, variant, observed, interval, instance, filters)

    def _filter(self, identifier: str, one: Filter, variant: Variant, instance: Instance) -> FilterValue:
        found = instance.attributes.get(one.attribute)
        if found is None:
            return FilterValue(one, None, None, instance.undecided.get(one.attribute, "not decided by the analysis"))
        members = _role_words(identifier, one.attribute)
        if members is None:
            return FilterValue(one, holds(one, found), found)
        if self._roles is None:
            return FilterValue(one, None, found, "without a task an argument has no role")
        path = instance.evidence[0].path if variant is NOTHING and instance.evidence else variant.path
        origins = [self._roles.words(path, instance.kernel, str(name), members) for name in as_tuple(found)]
        if one.attribute == AXIS:
            origins = [self._roles.along(origin) for origin in origins]
        answer = holds_for_role(one, origins)
        return FilterValue(one, answer, found, f"`{found}` is bound to no tensor of the task" if answer is None else "")


def holds(one: Filter, found: FoundValue) -> bool:
    """A filter against a found value; a set is compared member by member."""
    wanted = one.values
    match one.op:
        case Op.HAS:
            return set(as_tuple(found)) >= set(wanted)
        case Op.IN:
            return all(value in wanted for value in as_tuple(found))
        case Op.EQ:
            return same(found, wanted)
        case Op.NE:
            return not same(found, wanted)
    if isinstance(found, tuple | str) or isinstance(wanted[0], str):
        return False
    bound = wanted[0]
    match one.op:
        case Op.LT:
            return found < bound
        case Op.LE:
            return found <= bound
        case Op.GT:
            return found > bound
        case Op.GE:
            return found >= bound


def holds_for_role(one: Filter, found: Sequence[Origins]) -> bool | None:
    """A filter on a role, given what each found name may stand for; None if that does not settle it."""
    wanted = [str(value) for value in one.values]
    if one.op is Op.HAS:
        return _every(_some(_is_word(origins, {word}) for origins in found) for word in wanted)
    matched = _some(_is_word(origins, set(wanted)) for origins in found)
    return _negation(matched) if one.op is Op.NE else matched


def split(check: Check) -> tuple[tuple[Check, ...], tuple[Not, ...]]:
    """Positive parts and guards of a check's topmost `and`."""
    if isinstance(check, And):
        parts = [split(part) for part in check.parts]
        return tuple(chain.from_iterable(one for one, _ in parts)), tuple(chain.from_iterable(one for _, one in parts))
    return ((), (check,)) if isinstance(check, Not) else ((check,), ())


def best_of(intervals: Iterable[Interval]) -> Interval:
    """Either may count: the highest lower end and the highest upper end."""
    pairs = [(one.low, one.high) for one in intervals]
    return Interval(max(low for low, _ in pairs), max(high for _, high in pairs))


def over_configs(intervals: Iterable[Interval]) -> Interval:
    """A tuner picks one: the lowest lower end and the highest upper end."""
    pairs = [(one.low, one.high) for one in intervals]
    return Interval(min(low for low, _ in pairs), max(high for _, high in pairs))


def mean_of(intervals: Sequence[Interval]) -> Interval:
    count = len(intervals)
    return Interval(fsum(one.low for one in intervals) / count, fsum(one.high for one in intervals) / count)


def as_tuple(value: FoundValue) -> tuple[bool | int | str, ...]:
    return value if isinstance(value, tuple) else (value,)


def same(found: FoundValue, wanted: tuple[AttributeValue, ...]) -> bool:
    """Equality of values; `true` is not 1."""
    members = as_tuple(found)
    return set(members) == set(wanted) and {type(one) for one in members} == {type(one) for one in wanted}


def _role_words(identifier: str, attribute: str) -> tuple[str, ...] | None:
    """The words of an attribute that names a role; None for any other attribute."""
    declared = vocabulary().get(identifier)
    found = declared.attribute(attribute) if declared is not None else None
    return found.members if found is not None and found.type == "role" else None


def _is_word(origins: Origins, wanted: set[str]) -> bool | None:
    """Whether an argument is what `wanted` names, wherever it may come from."""
    answers = {bool(words & wanted) if words is not None else None for words in origins}
    return answers.pop() if len(answers) == 1 else None


def _some(answers: Iterable[bool | None]) -> bool | None:
    known = set(answers)
    if True in known:
        return True
    return None if None in known else False


def _every(answers: Iterable[bool | None]) -> bool | None:
    known = set(answers)
    if False in known:
        return False
    return None if None in known else True


def _negation(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _truth(interval: Interval) -> bool | None:
    """Whether all that was asked for is there."""
    if interval.low == 1:
        return True
    return False if interval.high < 1 else None


def _terms(values: Iterable[CheckValue]) -> tuple[TermValue, ...]:
    return tuple(term for value in values for term in value.terms)


def _as_guard(value: TermValue) -> TermValue:
    return TermValue(
        value.term, value.variant, value.observed, value.interval, value.instance, value.filters, guard=not value.guard
    )


def _nearness(value: CheckValue) -> int:
    """Terms that are present or nearly so: of two values without credit the one that comes nearer explains more."""
    return sum(
        term.instance is not None or (term.observed.why is not None and term.observed.why.reason is not Reason.NO_TRACE)
        for term in value.terms
    )
