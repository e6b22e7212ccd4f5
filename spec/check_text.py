"""A check as canonical `.d2k` text, with as few parentheses as its meaning needs."""

from __future__ import annotations

from d2k.spec.check import AllKernels, And, AttributeValue, Check, Filter, Not, Op, Or, Term


def render(check: Check) -> str:
    """`a(x >= 3) and (b or c) and not d`."""
    match check:
        case Term(name, filters):
            return f"{name}({', '.join(render_filter(one) for one in filters)})" if filters else name
        case And(parts):
            return " and ".join(_operand(part, Or) for part in parts)
        case Or(parts):
            return " or ".join(render(part) for part in parts)
        case Not(part):
            return f"not {_operand(part, And, Or)}"
        case AllKernels(part):
            return f"all_kernels:({render(part)})"


def render_filter(one: Filter) -> str:
    """`stages >= 3`, `policy in {a, b}`, `ops has bias`."""
    values = [render_value(value) for value in one.values]
    braces = one.op is Op.IN or len(values) > 1
    return f"{one.attribute} {one.op} {{{', '.join(values)}}}" if braces else f"{one.attribute} {one.op} {values[0]}"


def render_value(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _operand(part: Check, *loose: type[Check]) -> str:
    text = render(part)
    return f"({text})" if isinstance(part, loose) else text
