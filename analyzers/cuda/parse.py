"""From the parser's tree to that of `syntax`. Bodies of functions are converted when somebody asks for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from d2k.analyzers.cuda.syntax import (
    Asm,
    Assign,
    Binary,
    Block,
    Call,
    Case,
    Cast,
    Class,
    Decl,
    Enum,
    Fold,
    For,
    Function,
    If,
    Index,
    Init,
    Jump,
    Lambda,
    Literal,
    Member,
    Name,
    Node,
    Opaque,
    Param,
    RangeFor,
    Return,
    SizeOf,
    Switch,
    TemplateParam,
    Ternary,
    TypeName,
    Unary,
    Using,
    While,
)

if TYPE_CHECKING:
    import tree_sitter as ts

MAX_DEPTH = 200
"""Nesting at which expressions are given up; hostile inputs nest without end."""

EMPTY = Block(0, ())
_NO_STATEMENTS = frozenset(
    {
        "comment",
        "preproc_call",
        "static_assert_declaration",
        "using_declaration",
        "namespace_alias_definition",
        "empty_statement",
        "attribute_declaration",
    }
)
_WORDS = re.compile(
    r"\b(?:__global__|__device__|__host__|__shared__|__constant__|__managed__|__grid_constant__|static|inline|__forceinline__"
    r"|extern|constexpr|consteval|virtual|thread_local|const|volatile|__restrict__|friend|mutable|typedef)\b"
)
_CASTS = {
    "static_cast": "static",
    "reinterpret_cast": "reinterpret",
    "const_cast": "const",
    "dynamic_cast": "static",
    "bit_cast": "reinterpret",
}
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)([uUlLzZ]*)\Z")


@cache
def _language() -> ts.Language:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Language(tree_sitter_cuda.language())


def parse_tree(text: str) -> ts.Tree:
    """The parser's tree of a prepared (ASCII) text."""
    import tree_sitter

    return tree_sitter.Parser(_language()).parse(text.encode("ascii"))


class Items:
    """What one scope declares, in order: functions, classes, variables, aliases, enums, and expression statements."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.variables: list[tuple[str, Decl]] = []
        self.aliases: list[tuple[str, Using]] = []
        self.enums: list[Enum] = []
        self.loose: list[Node] = []
        self.instantiations: list[Node] = []


class Converter:
    """Converts the nodes of one tree. `text` is the prepared text that the tree was made from."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = 0
        self.extern_until = 0
        """The end of the `extern "C"` that is being converted."""
        self.comparisons: set[int] = set()
        """Where a comparison begins that the parser took for a call of a template."""
        self.cut: list[int] = []
        """Where nesting was given up."""
        self._bodies: dict[int, Node] = {}
        self._pending: dict[int, ts.Node] = {}

    def body(self, function: Function) -> Node | None:
        """The body of a function, converted at the first call; None for a declaration."""
        node = self._pending.pop(function.at, None)
        if node is not None:
            self._bodies[function.at] = self.statement(node)
        return self._bodies.get(function.at)

    def has_body(self, function: Function) -> bool:
        return function.at in self._pending or function.at in self._bodies

    def source(self, node: ts.Node) -> str:
        return self.text[node.start_byte : node.end_byte]

    # declarations

    def unit(self, root: ts.Node) -> Items:
        items = Items()
        self._declarations(root.named_children, "", (), items)
        return items

    def _declarations(self, nodes: list[ts.Node], scope: str, tparams: tuple[TemplateParam, ...], items: Items) -> None:
        # a stack in place of recursion: namespaces and parse errors may nest without end
        stack = [(node, scope, tparams) for node in reversed(nodes)]
        while stack:
            node, scope, tparams = stack.pop()
            kind = node.type
            if kind == "namespace_definition":
                name = node.child_by_field_name("name")
                inner = _join(scope, self.source(name)) if name is not None else scope
                body = node.child_by_field_name("body")
                if body is not None:
                    stack.extend((one, inner, ()) for one in reversed(body.named_children))
            elif kind in ("linkage_specification", "declaration_list", "ERROR", "preproc_if", "preproc_ifdef"):
                if kind == "linkage_specification":
                    self.extern_until = max(self.extern_until, node.end_byte)
                stack.extend((one, scope, tparams) for one in reversed(node.named_children))
            elif kind == "template_declaration":
                params, inner_node = self._template(node)
                if inner_node is not None:
                    stack.append((inner_node, scope, params or tparams))
            elif kind in ("function_definition", "inline_method_definition", "constructor_or_destructor_definition"):
                function = self.function(node, scope, tparams)
                if function is not None:
                    items.functions.append(function)
            elif kind in ("struct_specifier", "class_specifier", "union_specifier"):
                one = self.class_(node, scope, tparams)
                if one is not None:
                    items.classes.append(one)
            elif kind == "enum_specifier":
                items.enums.append(self.enum(node, scope))
            elif kind in ("declaration", "field_declaration"):
                self._declaration(node, scope, tparams, items)
            elif kind in ("alias_declaration", "type_definition"):
                items.aliases.extend((scope, one) for one in self.using(node, tparams))
            elif kind == "template_instantiation":
                items.instantiations.append(Opaque(node.start_byte, self.source(node)))
            elif kind in ("expression_statement", "call_expression") or (kind == "compound_statement" and items.loose):
                items.loose.append(self.statement(node))

    def _declaration(self, node: ts.Node, scope: str, tparams: tuple[TemplateParam, ...], items: Items) -> None:
        type_node = node.child_by_field_name("type")
        if type_node is not None and type_node.type in ("struct_specifier", "class_specifier", "union_specifier"):
            one = self.class_(type_node, scope, tparams)
            if one is not None:
                items.classes.append(one)
        elif type_node is not None and type_node.type == "enum_specifier":
            items.enums.append(self.enum(type_node, scope))
        for child in node.children_by_field_name("declarator"):
            if _function_declarator(child) is not None and child.type != "init_declarator":
                function = self.function(node, scope, tparams)
                if function is not None:
                    items.functions.append(function)
                return
        for decl in self.decls(node):
            items.variables.append((scope, decl))

    def _template(self, node: ts.Node) -> tuple[tuple[TemplateParam, ...], ts.Node | None]:
        params: tuple[TemplateParam, ...] = ()
        inner: ts.Node | None = None
        for child in node.named_children:
            if child.type == "template_parameter_list":
                params = self.tparams(child)
            elif child.type not in ("comment", "requires_clause"):
                inner = child
        return params, inner

    def tparams(self, node: ts.Node) -> tuple[TemplateParam, ...]:
        found: list[TemplateParam] = []
        for child in node.named_children:
            kind = child.type
            if kind in ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration"):
                param = self.param(child)
                found.append(TemplateParam(param.name, param.type, param.default, kind.startswith("variadic")))
            elif kind in (
                "type_parameter_declaration",
                "optional_type_parameter_declaration",
                "variadic_type_parameter_declaration",
            ):
                name = child.child_by_field_name("name")
                if name is None:
                    name = next((c for c in child.named_children if c.type == "type_identifier"), None)
                default = child.child_by_field_name("default_type")
                found.append(
                    TemplateParam(
                        self.source(name) if name is not None else "",
                        None,
                        self.type_argument(default) if default is not None else None,
                        kind.startswith("variadic"),
                    )
                )
            elif kind == "template_template_parameter_declaration":
                name = next((c for c in _descend(child) if c.type == "type_identifier"), None)
                found.append(TemplateParam(self.source(name) if name is not None else "", None))
        return tuple(found)

    def function(self, node: ts.Node, scope: str, tparams: tuple[TemplateParam, ...]) -> Function | None:
        declarator = next(
            (d for c in node.children_by_field_name("declarator") if (d := _function_declarator(c)) is not None), None
        )
        if declarator is None:
            return None
        name_node = declarator.child_by_field_name("declarator")
        params_node = declarator.child_by_field_name("parameters")
        if name_node is None:
            return None
        name, owner = self._function_name(name_node)
        body = node.child_by_field_name("body")
        head_end = declarator.start_byte
        head = self.text[node.start_byte : head_end]
        words = {word.strip("_") for word in _WORDS.findall(head)}
        if node.start_byte < self.extern_until:
            words.add("extern")
        type_node = node.child_by_field_name("type")
        returns = self.type_of(node, type_node, next(iter(node.children_by_field_name("declarator")), None))
        inits: list[tuple[str, tuple[Node, ...]]] = []
        for child in node.named_children:
            if child.type == "field_initializer_list":
                inits.extend(self._field_init(one) for one in child.named_children if one.type == "field_initializer")
        function = Function(
            node.start_byte,
            node.end_byte,
            name,
            scope,
            tparams,
            self.params(params_node) if params_node is not None else (),
            returns if type_node is not None else None,
            frozenset(words),
            EMPTY if body is not None else None,
            tuple(inits),
            owner,
        )
        if body is not None:
            self._pending[function.at] = body
        return function

    def _field_init(self, node: ts.Node) -> tuple[str, tuple[Node, ...]]:
        name = ""
        args: tuple[Node, ...] = ()
        for child in node.named_children:
            if child.type in ("argument_list", "initializer_list"):
                args = self.arguments(child)
            elif not name:
                name = self.source(child)
        return name, args

    def _function_name(self, node: ts.Node) -> tuple[str, str]:
        """Name and, for `A::B::f`, the scope that it is qualified with."""
        text = "".join(self.source(node).split())
        if node.type == "qualified_identifier":
            name = self.name(node)
            if name is not None:
                return name.name, name.scope.dotted if name.scope is not None else ""
        if node.type == "template_function":
            inner = node.child_by_field_name("name")
            return (self.source(inner) if inner is not None else text), ""
        if node.type == "operator_cast":
            return "operator", ""
        return text, ""

    def params(self, node: ts.Node) -> tuple[Param, ...]:
        return tuple(
            self.param(child)
            for child in node.named_children
            if child.type
            in ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration")
        )

    def param(self, node: ts.Node) -> Param:
        declarator = node.child_by_field_name("declarator")
        type_ = self.type_of(node, node.child_by_field_name("type"), declarator)
        default = node.child_by_field_name("default_value")
        return Param(
            node.start_byte,
            self._declared(declarator) if declarator is not None else "",
            type_,
            self.expression(default) if default is not None else None,
        )

    def _declared(self, node: ts.Node) -> str:
        """The name that a declarator declares."""
        steps = 0
        while steps < MAX_DEPTH:
            steps += 1
            kind = node.type
            if kind in ("identifier", "field_identifier", "type_identifier", "operator_name"):
                return self.source(node)
            inner = node.child_by_field_name("declarator")
            if inner is None:
                inner = next((c for c in node.named_children if _is_declarator(c)), None)
            if inner is None:
                return self.source(node) if kind in ("qualified_identifier", "destructor_name") else ""
            node = inner
        return ""

    def type_of(self, node: ts.Node, type_node: ts.Node | None, declarator: ts.Node | None) -> TypeName:
        """The type that a declaration gives to one of its declarators."""
        base, of = self._base(type_node)
        qualifiers = {self.source(c) for c in node.children if c.type in ("type_qualifier", "storage_class_specifier")}
        pointer, reference, pack = 0, False, False
        restrict = False
        dims: list[Node | None] = []
        to_array = False
        steps = 0
        while declarator is not None and steps < MAX_DEPTH:
            steps += 1
            kind = declarator.type
            if kind in ("pointer_declarator", "abstract_pointer_declarator"):
                pointer += 1
                to_array = to_array or bool(dims)
                restrict = restrict or any(
                    c.type == "type_qualifier" and "restrict" in self.source(c) for c in declarator.children
                )
            elif kind in ("reference_declarator", "abstract_reference_declarator"):
                reference = True
            elif kind in ("array_declarator", "abstract_array_declarator"):
                size = declarator.child_by_field_name("size")
                dims.append(self.expression(size) if size is not None else None)
            elif kind == "variadic_declarator":
                pack = True
            elif kind in ("function_declarator", "abstract_function_declarator"):
                pass
            inner = declarator.child_by_field_name("declarator")
            if inner is None:
                inner = next((c for c in declarator.named_children if _is_declarator(c)), None)
            declarator = inner
        end = type_node.end_byte if type_node is not None else node.end_byte
        return TypeName(
            type_node.start_byte if type_node is not None else node.start_byte,
            base,
            pointer,
            reference,
            "const" in qualifiers or "constexpr" in qualifiers,
            tuple(reversed(dims)),
            of,
            "volatile" in qualifiers,
            restrict,
            pack,
            end,
            to_array,
        )

    def _base(self, node: ts.Node | None) -> tuple[Name | None, Node | None]:
        """The named type behind a type node, or what a decltype is applied to."""
        if node is None:
            return Name(0, "int"), None
        kind = node.type
        if kind == "type_descriptor":
            return self._base(node.child_by_field_name("type"))
        if kind in ("primitive_type", "sized_type_specifier", "type_identifier", "identifier"):
            return Name(node.start_byte, " ".join(self.source(node).split())), None
        if kind in ("placeholder_type_specifier", "auto"):
            inner = next((c for c in node.named_children if c.type == "decltype"), None)
            return self._base(inner) if inner is not None else (None, None)
        if kind == "decltype":
            inner = next((c for c in node.named_children if c.type != "auto"), None)
            return None, (self.expression(inner) if inner is not None else None)
        if kind == "dependent_type":
            inner = next(iter(node.named_children), None)
            return self._base(inner) if inner is not None else (None, None)
        if kind in ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier"):
            name = node.child_by_field_name("name")
            return (self.name(name) if name is not None else Name(node.start_byte, f"<{node.start_byte}>")), None
        return self.name(node), None

    def type_argument(self, node: ts.Node) -> Node:
        """A type or, where a type and an expression look alike, a name."""
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                self.cut.append(node.start_byte)
                return Opaque(node.start_byte, self.source(node)[:200])
            return self._type_argument(node)
        finally:
            self.depth -= 1

    def _type_argument(self, node: ts.Node) -> Node:
        if node.type == "type_descriptor":
            return self.type_name(node)
        if node.type in (
            "primitive_type",
            "sized_type_specifier",
            "type_identifier",
            "template_type",
            "qualified_identifier",
            "dependent_type",
            "decltype",
        ):
            base, of = self._base(node)
            return TypeName(node.start_byte, base, of=of, end=node.end_byte)
        return self.expression(node)

    def type_name(self, node: ts.Node) -> TypeName:
        return self.type_of(node, node.child_by_field_name("type") or node, node.child_by_field_name("declarator"))

    def name(self, node: ts.Node) -> Name | None:
        """A possibly qualified name with template arguments; None if the node is no name."""
        kind = node.type
        if kind in ("qualified_identifier", "nested_namespace_specifier"):
            scope_node = node.child_by_field_name("scope")
            name_node = node.child_by_field_name("name")
            scope = self.name(scope_node) if scope_node is not None else None
            if name_node is None:
                return scope
            inner = self.name(name_node)
            return inner if inner is None or scope is None else _under(scope, inner)
        if kind in ("template_type", "template_function", "template_method"):
            inner_node = node.child_by_field_name("name") or node.child_by_field_name("field")
            args = node.child_by_field_name("arguments")
            inner = self.name(inner_node) if inner_node is not None else None
            if inner is None:
                return None
            return Name(inner.at, inner.name, self.targs(args) if args is not None else (), inner.scope)
        if kind in ("dependent_name", "dependent_type"):
            inner_node = next(iter(node.named_children), None)
            return self.name(inner_node) if inner_node is not None else None
        if kind == "decltype":
            return Name(node.start_byte, self.source(node))
        if kind in ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier"):
            name = node.child_by_field_name("name")
            return self.name(name) if name is not None else None
        if node.named_child_count and kind not in ("operator_name", "destructor_name", "sized_type_specifier"):
            return None
        text = self.source(node)
        return Name(node.start_byte, text if text.isidentifier() else " ".join(text.split()))

    def targs(self, node: ts.Node) -> tuple[Node, ...]:
        return tuple(self.type_argument(child) for child in node.named_children if child.type != "comment")

    def class_(self, node: ts.Node, scope: str, tparams: tuple[TemplateParam, ...]) -> Class | None:
        body = node.child_by_field_name("body")
        if body is None:
            return None
        name_node = node.child_by_field_name("name")
        name = self.name(name_node) if name_node is not None else None
        plain = name.dotted if name is not None else f"<{node.start_byte}>"
        inner = _join(scope, plain)
        items = Items()
        self._declarations(body.named_children, inner, (), items)
        bases: list[TypeName] = []
        for child in node.named_children:
            if child.type == "base_class_clause":
                for one in child.named_children:
                    if one.type not in ("access_specifier", "virtual"):
                        base = self._base(one)[0]
                        bases.append(TypeName(one.start_byte, base))
        methods: list[Function] = []
        for function in items.functions:
            if function.scope == inner:
                methods.append(function)
        return Class(
            node.start_byte,
            node.end_byte,
            plain,
            scope,
            tparams,
            name.targs if name is not None else None,
            tuple(bases),
            (*(decl for where, decl in items.variables if where == inner), *_anonymous(body, items.classes)),
            tuple(methods),
            tuple(using for where, using in items.aliases if where == inner),
            tuple(items.enums),
            tuple(items.classes),
            None,
            node.type == "union_specifier",
        )

    def enum(self, node: ts.Node, scope: str) -> Enum:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        found: list[tuple[str, Node | None]] = []
        for child in body.named_children if body is not None else ():
            if child.type == "enumerator":
                label = child.child_by_field_name("name")
                value = child.child_by_field_name("value")
                if label is not None:
                    found.append((self.source(label), self.expression(value) if value is not None else None))
        scoped = any(c.type in ("class", "struct") for c in node.children)
        return Enum(node.start_byte, self.source(name) if name is not None else "", scope, tuple(found), scoped)

    def using(self, node: ts.Node, tparams: tuple[TemplateParam, ...]) -> tuple[Using, ...]:
        if node.type == "alias_declaration":
            name, type_node = node.child_by_field_name("name"), node.child_by_field_name("type")
            if name is None or type_node is None:
                return ()
            return (Using(node.start_byte, self.source(name), self.type_name(type_node), tparams),)
        type_node = node.child_by_field_name("type")
        return tuple(
            Using(node.start_byte, label, self.type_of(node, type_node, child), tparams)
            for child in node.children_by_field_name("declarator")
            if (label := self._declared(child))
        )

    def decls(self, node: ts.Node) -> tuple[Decl, ...]:
        """The variables of a declaration or field declaration."""
        type_node = node.child_by_field_name("type")
        head_end = type_node.start_byte if type_node is not None else node.start_byte
        first = node.child_by_field_name("declarator")
        words = {w.strip("_") for w in _WORDS.findall(self.text[node.start_byte : head_end])}
        if first is not None and type_node is not None:
            words |= {w.strip("_") for w in _WORDS.findall(self.text[type_node.end_byte : first.start_byte])}
        storage = frozenset(words)
        found: list[Decl] = []
        default = node.child_by_field_name("default_value")
        for child in node.children_by_field_name("declarator"):
            init: Node | None = None
            args: tuple[Node, ...] = ()
            style = ""
            declarator = child
            if child.type == "init_declarator":
                value = child.child_by_field_name("value")
                declarator = child.child_by_field_name("declarator") or child
                if value is not None and value.type == "argument_list":
                    args, style = self.arguments(value), "("
                elif value is not None:
                    init = self.expression(value)
                    direct = (
                        value.type == "initializer_list"
                        and "=" not in self.text[declarator.end_byte : value.start_byte]
                    )
                    style = "{" if direct else "="
            elif child.type == "function_declarator":
                # `T name(a, b);` in a body: a variable, whatever it looks like to the parser
                listed = child.child_by_field_name("parameters")
                declarator = child.child_by_field_name("declarator") or child
                args, style = self._as_arguments(listed) if listed is not None else (), "("
            elif default is not None:
                init = self.expression(default)
                style = "="
            names = tuple(self.source(c) for c in _bindings(declarator))
            found.append(
                Decl(
                    node.start_byte if child == first else child.start_byte,
                    child.end_byte,
                    self.type_of(node, type_node, declarator),
                    self._declared(declarator) if not names else "",
                    init,
                    style,
                    storage,
                    args,
                    names,
                )
            )
        return tuple(found)

    def _as_arguments(self, node: ts.Node) -> tuple[Node, ...]:
        """Arguments that the parser took for parameters."""
        found: list[Node] = []
        for child in node.named_children:
            if child.type != "parameter_declaration":
                if child.type != "comment":
                    found.append(self.expression(child))
                continue
            type_node = child.child_by_field_name("type")
            if type_node is None:
                continue
            value: Node = self.name(type_node) or Opaque(type_node.start_byte, self.source(type_node))
            found.append(self._as_argument(value, child.child_by_field_name("declarator"), child.start_byte))
        return tuple(found)

    def _as_argument(self, value: Node, declarator: ts.Node | None, at: int) -> Node:
        if declarator is None:
            return value
        kind = declarator.type
        inner = declarator.child_by_field_name("declarator")
        if kind == "abstract_array_declarator":
            size = declarator.child_by_field_name("size")
            base = self._as_argument(value, inner, at)
            return Index(at, base, (self.expression(size),) if size is not None else ())
        if kind == "abstract_function_declarator":
            listed = declarator.child_by_field_name("parameters")
            args = self._as_arguments(listed) if listed is not None else ()
            return Call(at, declarator.end_byte, self._as_argument(value, inner, at), args)
        if kind in ("pointer_declarator", "reference_declarator"):
            name = self._declared(declarator)
            op = "*" if kind == "pointer_declarator" else "&"
            return Binary(at, op, value, Name(declarator.start_byte, name)) if name else value
        return value

    # statements

    def statement(self, node: ts.Node) -> Node:
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                self.cut.append(node.start_byte)
                return Opaque(node.start_byte, self.source(node)[:200])
            handler = _STATEMENTS.get(node.type)
            if handler is not None:
                return handler(self, node)
            return self.expression(node)
        finally:
            self.depth -= 1

    def _block(self, node: ts.Node) -> Node:
        return Block(node.start_byte, tuple(self._statements(node.named_children)))

    def _statements(self, nodes: list[ts.Node]) -> Iterator[Node]:
        for child in nodes:
            kind = child.type
            if kind in _NO_STATEMENTS:
                continue
            if kind == "declaration":
                type_node = child.child_by_field_name("type")
                if type_node is not None and type_node.type in (
                    "struct_specifier",
                    "class_specifier",
                    "union_specifier",
                ):
                    one = self.class_(type_node, "", ())
                    if one is not None:
                        yield one
                elif type_node is not None and type_node.type == "enum_specifier":
                    yield self.enum(type_node, "")
                yield from self.decls(child)
            elif kind in ("alias_declaration", "type_definition"):
                yield from self.using(child, ())
            elif kind in ("struct_specifier", "class_specifier", "union_specifier"):
                one = self.class_(child, "", ())
                if one is not None:
                    yield one
            elif kind == "enum_specifier":
                yield self.enum(child, "")
            else:
                yield self.statement(child)

    def _declaration_statement(self, node: ts.Node) -> Node:
        found = tuple(self._statements([node]))
        return found[0] if len(found) == 1 else Block(-1, found)

    def _expression_statement(self, node: ts.Node) -> Node:
        inner = next(iter(node.named_children), None)
        if inner is None:
            return Block(node.start_byte, ())
        found = self.statement(inner)
        if isinstance(found, Binary):
            return _as_declaration(found, node.end_byte) or found
        if isinstance(found, Assign) and not found.op:
            return _as_array_reference(found, node.end_byte) or found
        return found

    def _if(self, node: ts.Node) -> Node:
        condition = node.child_by_field_name("condition")
        then = node.child_by_field_name("consequence")
        other = node.child_by_field_name("alternative")
        if other is not None and other.type == "else_clause":
            other = next((c for c in other.named_children if c.type != "comment"), None)
        constexpr = any(c.type == "constexpr" for c in node.children)
        init, test = self._condition(condition)
        return If(
            node.start_byte,
            test,
            self.statement(then) if then is not None else EMPTY,
            self.statement(other) if other is not None else None,
            constexpr,
            init,
        )

    def _condition(self, node: ts.Node | None) -> tuple[Node | None, Node]:
        """The initialiser, if any, and the condition of an `if`, `while` or `switch`."""
        if node is None:
            return None, Opaque(0, "")
        value = node.child_by_field_name("value")
        init = node.child_by_field_name("initializer")
        start: Node | None = None
        if init is not None:
            inner = next(iter(init.named_children), None)
            start = self._declaration_statement(inner) if inner is not None else None
        if value is None:
            value = next((c for c in node.named_children if c.type != "comment"), None)
            if value is None:
                return start, Opaque(node.start_byte, "")
        if value.type == "declaration":
            found = tuple(self.decls(value))
            if found:
                return Block(-1, found), Name(value.start_byte, found[0].name)
        return start, self.expression(value)

    def _for(self, node: ts.Node) -> Node:
        init = node.child_by_field_name("initializer")
        condition = node.child_by_field_name("condition")
        update = node.child_by_field_name("update")
        body = node.child_by_field_name("body")
        start: Node | None = None
        if init is not None:
            start = self._declaration_statement(init) if init.type == "declaration" else self.expression(init)
        return For(
            node.start_byte,
            node.end_byte,
            start,
            self.expression(condition) if condition is not None else None,
            self.expression(update) if update is not None else None,
            self.statement(body) if body is not None else EMPTY,
        )

    def _range_for(self, node: ts.Node) -> Node:
        declarator = node.child_by_field_name("declarator")
        over = node.child_by_field_name("right")
        body = node.child_by_field_name("body")
        type_ = self.type_of(node, node.child_by_field_name("type"), declarator)
        names = tuple(self.source(c) for c in _bindings(declarator)) if declarator is not None else ()
        name = self._declared(declarator) if declarator is not None and not names else ""
        return RangeFor(
            node.start_byte,
            node.end_byte,
            Decl(node.start_byte, node.end_byte, type_, name, None, "", frozenset(), (), names),
            self.expression(over) if over is not None else Opaque(node.start_byte, ""),
            self.statement(body) if body is not None else EMPTY,
        )

    def _while(self, node: ts.Node) -> Node:
        body = node.child_by_field_name("body")
        _, condition = self._condition(node.child_by_field_name("condition"))
        return While(
            node.start_byte,
            node.end_byte,
            condition,
            self.statement(body) if body is not None else EMPTY,
            node.type == "do_statement",
        )

    def _switch(self, node: ts.Node) -> Node:
        _, condition = self._condition(node.child_by_field_name("condition"))
        body = node.child_by_field_name("body")
        cases: list[Case] = []
        for child in body.named_children if body is not None else ():
            if child.type != "case_statement":
                continue
            value = child.child_by_field_name("value")
            rest = [c for c in child.named_children if value is None or c.id != value.id]
            cases.append(
                Case(
                    child.start_byte,
                    self.expression(value) if value is not None else None,
                    tuple(self._statements(rest)),
                )
            )
        return Switch(node.start_byte, condition, tuple(cases))

    def _return(self, node: ts.Node) -> Node:
        value = next((c for c in node.named_children if c.type != "comment"), None)
        return Return(node.start_byte, self.expression(value) if value is not None else None)

    def _jump(self, node: ts.Node) -> Node:
        return Jump(node.start_byte, node.type.split("_")[0])

    def _labeled(self, node: ts.Node) -> Node:
        inner = [c for c in node.named_children if c.type not in ("statement_identifier", "comment")]
        return Block(-1, tuple(self._statements(inner)))

    def _try(self, node: ts.Node) -> Node:
        body = node.child_by_field_name("body")
        return self.statement(body) if body is not None else EMPTY

    def _error(self, node: ts.Node) -> Node:
        return Block(-1, tuple(self._statements(node.named_children)))

    # expressions

    def expression(self, node: ts.Node) -> Node:
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                self.cut.append(node.start_byte)
                return Opaque(node.start_byte, self.source(node)[:200])
            handler = _EXPRESSIONS.get(node.type)
            if handler is not None:
                return handler(self, node)
            return Opaque(
                node.start_byte,
                self.source(node)[:200],
                tuple(self.expression(c) for c in node.named_children if c.type != "comment"),
            )
        finally:
            self.depth -= 1

    def _identifier(self, node: ts.Node) -> Node:
        return Name(node.start_byte, self.source(node))

    def _qualified(self, node: ts.Node) -> Node:
        name = self.name(node)
        return name if name is not None else Opaque(node.start_byte, self.source(node))

    def _number(self, node: ts.Node) -> Node:
        return number(self.source(node), node.start_byte)

    def _string(self, node: ts.Node) -> Node:
        return Literal(node.start_byte, self._string_text(node), "str")

    def _string_text(self, node: ts.Node) -> str:
        """The characters of a string literal or of several joined ones, escapes decoded."""
        if node.type == "concatenated_string":
            return "".join(self._string_text(child) for child in node.named_children)
        text = self.source(node)
        if node.type == "raw_string_literal":
            content = next((c for c in node.named_children if c.type == "raw_string_content"), None)
            return self.source(content) if content is not None else ""
        if node.type == "string_literal":
            inner = text[text.find('"') + 1 :].rstrip()
            inner = inner[:-1] if inner.endswith('"') else inner
            return decode(inner)
        return ""

    def _char(self, node: ts.Node) -> Node:
        inner = decode(self.source(node).strip("'"))
        return Literal(node.start_byte, ord(inner[0]) if inner else 0, "i8")

    def _true(self, node: ts.Node) -> Node:
        return Literal(node.start_byte, node.type == "true", "bool")

    def _null(self, node: ts.Node) -> Node:
        return Literal(node.start_byte, None, "")

    def _binary(self, node: ts.Node) -> Node:
        # long chains of one operator lean left: walk them with a loop
        chain: list[tuple[int, str, ts.Node]] = []
        while node.type == "binary_expression":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            op = node.child_by_field_name("operator")
            if left is None or right is None or op is None:
                return Opaque(node.start_byte, self.source(node)[:200])
            chain.append((op.start_byte, op.type, right))
            node = left
        result = self.expression(node)
        for at, op_text, right in reversed(chain):
            operand = self.expression(right)
            if isinstance(result, Binary) and result.at in self.comparisons and op_text in ("+", "-", "*", "/", "%"):
                # `i < size<0>(t) - 1`, whose first part the parser took for a call of `i`
                result = Binary(result.at, result.op, result.left, Binary(at, op_text, result.right, operand))
            else:
                result = Binary(at, op_text, result, operand)
        return result

    def _comma(self, node: ts.Node) -> Node:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        return Binary(node.start_byte, ",", self.expression(left), self.expression(right))

    def _unary(self, node: ts.Node) -> Node:
        operand = node.child_by_field_name("argument")
        op = node.child_by_field_name("operator")
        if operand is None or op is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        return Unary(node.start_byte, op.type, self.expression(operand))

    def _update(self, node: ts.Node) -> Node:
        operand = node.child_by_field_name("argument")
        op = node.child_by_field_name("operator")
        if operand is None or op is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        postfix = op.start_byte > operand.start_byte
        return Unary(node.start_byte, ("p" if postfix else "") + op.type, self.expression(operand))

    def _assign(self, node: ts.Node) -> Node:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        op = node.child_by_field_name("operator")
        if left is None or right is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        return Assign(
            node.start_byte, op.type[:-1] if op is not None else "", self.expression(left), self.expression(right)
        )

    def _ternary(self, node: ts.Node) -> Node:
        parts = [node.child_by_field_name(f) for f in ("condition", "consequence", "alternative")]
        if any(part is None for part in parts):
            return Opaque(node.start_byte, self.source(node)[:200])
        condition, yes, no = (self.expression(part) for part in parts if part is not None)
        return Ternary(node.start_byte, condition, yes, no)

    def _parentheses(self, node: ts.Node) -> Node:
        inner = [c for c in node.named_children if c.type != "comment"]
        return self.expression(inner[0]) if len(inner) == 1 else Opaque(node.start_byte, self.source(node)[:200])

    def arguments(self, node: ts.Node) -> tuple[Node, ...]:
        return tuple(
            self.type_argument(c) if c.type == "type_descriptor" else self.statement(c)
            for c in node.named_children
            if c.type != "comment"
        )

    def _call(self, node: ts.Node) -> Node:
        callee_node = node.child_by_field_name("function")
        args_node = node.child_by_field_name("arguments")
        launch_node = next((c for c in node.named_children if c.type == "kernel_call_syntax"), None)
        if callee_node is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        args = self.arguments(args_node) if args_node is not None else ()
        if callee_node.type == "primitive_type" and len(args) == 1:
            base, _ = self._base(callee_node)
            return Cast(node.start_byte, TypeName(node.start_byte, base), args[0], "static")
        if callee_node.type == "template_function" and len(args) == 1:
            name = self.name(callee_node)
            if name is not None and name.name in _CASTS and name.targs:
                type_ = name.targs[0]
                if isinstance(type_, TypeName):
                    return Cast(node.start_byte, type_, args[0], _CASTS[name.name])
        callee = self.expression(callee_node)
        launch = None
        if launch_node is not None:
            launch = tuple(self.expression(c) for c in launch_node.named_children if c.type != "comment")
        call = Call(node.start_byte, node.end_byte, callee, args, launch)
        comparison = _as_comparison(call)
        if comparison is not None:
            self.comparisons.add(node.start_byte)
            return comparison
        return call

    def _subscript(self, node: ts.Node) -> Node:
        base = node.child_by_field_name("argument")
        indices = node.child_by_field_name("indices")
        if base is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        return Index(node.start_byte, self.expression(base), self.arguments(indices) if indices is not None else ())

    def _field(self, node: ts.Node) -> Node:
        base, field = node.child_by_field_name("argument"), node.child_by_field_name("field")
        op = node.child_by_field_name("operator")
        if base is None or field is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        name = self.name(field)
        if name is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        return Member(node.start_byte, self.expression(base), name.name, op is not None and op.type == "->", name.targs)

    def _cast(self, node: ts.Node) -> Node:
        type_node, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        if type_node is None or value is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        type_ = self.type_name(type_node)
        return Cast(node.start_byte, type_, self.expression(value), "c")

    def _compound_literal(self, node: ts.Node) -> Node:
        type_node, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        items, names = self._items(value) if value is not None else ((), ())
        return Init(node.start_byte, items, self.type_name(type_node) if type_node is not None else None, names)

    def _initializer_list(self, node: ts.Node) -> Node:
        items, names = self._items(node)
        return Init(node.start_byte, items, None, names)

    def _items(self, node: ts.Node) -> tuple[tuple[Node, ...], tuple[str, ...]]:
        items: list[Node] = []
        names: list[str] = []
        for child in node.named_children:
            if child.type == "comment":
                continue
            if child.type == "initializer_pair":
                value = child.child_by_field_name("value")
                label = child.child_by_field_name("designator")
                if value is not None:
                    items.append(self.expression(value))
                    names.append(self.source(label).lstrip(".") if label is not None else "")
            else:
                items.append(self.expression(child))
        return tuple(items), tuple(names)

    def _lambda(self, node: ts.Node) -> Node:
        captures = node.child_by_field_name("captures")
        declarator = node.child_by_field_name("declarator")
        body = node.child_by_field_name("body")
        tparams = node.child_by_field_name("template_parameters")
        params = declarator.child_by_field_name("parameters") if declarator is not None else None
        capture = self.source(captures) if captures is not None else ""
        return Lambda(
            node.start_byte,
            node.end_byte,
            self.params(params) if params is not None else (),
            self.statement(body) if body is not None else EMPTY,
            "&" not in capture,
            self.tparams(tparams) if tparams is not None else (),
        )

    def _sizeof(self, node: ts.Node) -> Node:
        inner = node.child_by_field_name("type") or node.child_by_field_name("value")
        if inner is None:
            inner = next(iter(node.named_children), None)
        if inner is None:
            return Opaque(node.start_byte, self.source(node))
        return SizeOf(node.start_byte, self.type_argument(inner))

    def _asm(self, node: ts.Node) -> Node:
        code = node.child_by_field_name("assembly_code")
        outputs, inputs = (
            tuple(self._asm_operand(c) for c in listed.named_children if c.type.startswith("gnu_asm_"))
            if (listed := node.child_by_field_name(f)) is not None
            else ()
            for f in ("output_operands", "input_operands")
        )
        text = self._string_text(code) if code is not None else ""
        volatile = any(c.type == "gnu_asm_qualifier" for c in node.children)
        return Asm(node.start_byte, node.end_byte, text, outputs, inputs, volatile)

    def _asm_operand(self, node: ts.Node) -> tuple[str, Node]:
        constraint, value = node.child_by_field_name("constraint"), node.child_by_field_name("value")
        text = self._string_text(constraint) if constraint is not None else ""
        return text, self.expression(value) if value is not None else Opaque(node.start_byte, "")

    def _type_expression(self, node: ts.Node) -> Node:
        return self.type_argument(node)

    def _fold(self, node: ts.Node) -> Node:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operand = left if left is not None else right
        if operand is None:
            return Opaque(node.start_byte, self.source(node)[:200])
        words = [c.type for c in node.children if not c.is_named and c.type not in ("(", ")", "...")]
        return Fold(node.start_byte, words[0] if words else ",", self.expression(operand))

    def _pack(self, node: ts.Node) -> Node:
        inner = next(iter(node.named_children), None)
        value = self.expression(inner) if inner is not None else Opaque(node.start_byte, "")
        return Opaque(node.start_byte, "...", (value,))


_STATEMENTS: dict[str, Callable[[Converter, ts.Node], Node]] = {
    "compound_statement": Converter._block,
    "declaration": Converter._declaration_statement,
    "alias_declaration": Converter._declaration_statement,
    "type_definition": Converter._declaration_statement,
    "struct_specifier": Converter._declaration_statement,
    "expression_statement": Converter._expression_statement,
    "if_statement": Converter._if,
    "for_statement": Converter._for,
    "for_range_loop": Converter._range_for,
    "while_statement": Converter._while,
    "do_statement": Converter._while,
    "switch_statement": Converter._switch,
    "return_statement": Converter._return,
    "break_statement": Converter._jump,
    "continue_statement": Converter._jump,
    "goto_statement": Converter._jump,
    "labeled_statement": Converter._labeled,
    "try_statement": Converter._try,
    "ERROR": Converter._error,
}

_EXPRESSIONS: dict[str, Callable[[Converter, ts.Node], Node]] = {
    "identifier": Converter._identifier,
    "field_identifier": Converter._identifier,
    "this": Converter._identifier,
    "type_identifier": Converter._identifier,
    "namespace_identifier": Converter._identifier,
    "qualified_identifier": Converter._qualified,
    "template_function": Converter._qualified,
    "dependent_name": Converter._qualified,
    "number_literal": Converter._number,
    "string_literal": Converter._string,
    "raw_string_literal": Converter._string,
    "concatenated_string": Converter._string,
    "char_literal": Converter._char,
    "true": Converter._true,
    "false": Converter._true,
    "null": Converter._null,
    "nullptr": Converter._null,
    "binary_expression": Converter._binary,
    "comma_expression": Converter._comma,
    "unary_expression": Converter._unary,
    "pointer_expression": Converter._unary,
    "update_expression": Converter._update,
    "assignment_expression": Converter._assign,
    "conditional_expression": Converter._ternary,
    "parenthesized_expression": Converter._parentheses,
    "call_expression": Converter._call,
    "subscript_expression": Converter._subscript,
    "field_expression": Converter._field,
    "cast_expression": Converter._cast,
    "compound_literal_expression": Converter._compound_literal,
    "initializer_list": Converter._initializer_list,
    "lambda_expression": Converter._lambda,
    "sizeof_expression": Converter._sizeof,
    "alignof_expression": Converter._sizeof,
    "gnu_asm_expression": Converter._asm,
    "type_descriptor": Converter._type_expression,
    "primitive_type": Converter._type_expression,
    "sized_type_specifier": Converter._type_expression,
    "template_type": Converter._type_expression,
    "decltype": Converter._type_expression,
    "parameter_pack_expansion": Converter._pack,
    "fold_expression": Converter._fold,
    "condition_clause": Converter._parentheses,
    "compound_statement": Converter._block,
}


def number(text: str, at: int) -> Literal:
    """The value and element type of a number literal."""
    plain = text.replace("'", "")
    if plain[:1] in "+-":
        inner = number(plain[1:], at)
        if plain[0] == "-" and isinstance(inner.value, (int, float)):
            return Literal(at, -inner.value, inner.dtype)
        return inner
    if match := _INTEGER.match(plain):
        digits, suffix = match.groups()
        base = 8 if len(digits) > 1 and digits[0] == "0" and digits.isdigit() else 0
        try:
            value = int(digits, base) if len(digits) < 60 else 0
        except ValueError:
            value = 0
        suffix = suffix.lower()
        wide = "l" in suffix or value >= 1 << 32
        unsigned = "u" in suffix or (base == 0 and digits[:2].lower() == "0x" and value >= 1 << 31)
        return Literal(at, value, ("u" if unsigned else "i") + ("64" if wide else "32"))
    try:
        if plain[:2].lower() == "0x":
            return Literal(at, float.fromhex(plain.rstrip("fFlL")), "f64")
        return Literal(at, float(plain.rstrip("fFlL")), "f32" if plain[-1:] in "fF" else "f64")
    except (ValueError, OverflowError):
        return Literal(at, None, "f32")


def _as_declaration(node: Binary, end: int) -> Decl | None:
    """`A<2 * n> x;`, which the parser reads as two comparisons: a statement of comparisons does nothing."""
    parts: list[Node] = []
    rest: Node = node
    while isinstance(rest, Binary) and rest.op == ",":
        parts.append(rest.right)
        rest = rest.left
    parts.append(rest)
    parts.reverse()
    last = parts[-1]
    if not isinstance(last, Binary) or last.op != ">":
        return None
    declared = last.right
    parts[-1] = last.left
    first = parts[0]
    if not isinstance(first, Binary) or first.op != "<" or not isinstance(first.left, Name):
        return None
    targs = (first.right, *parts[1:])
    base = Name(first.left.at, first.left.name, targs, first.left.scope)
    args: tuple[Node, ...] = ()
    if isinstance(declared, Call):
        args, declared = declared.args, declared.callee
    if not isinstance(declared, Name) or declared.scope is not None or declared.targs is not None:
        return None
    style = "(" if args else ""
    return Decl(base.at, end, TypeName(base.at, base), declared.name, None, style, frozenset(), args)


def _as_array_reference(node: Assign, end: int) -> Decl | None:
    """`T (&x)[3] = v;` and `T (*x)[3] = v;`, which the parser reads as assignments to an element of a call's result."""
    dims: list[Node | None] = []
    target = node.target
    while isinstance(target, Index) and len(target.args) == 1:
        dims.append(target.args[0])
        target = target.base
    if not dims:
        return None
    base: Name | None = None
    operand: Node | None = None
    if isinstance(target, Call) and isinstance(target.callee, Name) and target.callee.targs is not None:
        base, operand = target.callee, target.args[0] if len(target.args) == 1 else None
    elif isinstance(target, Cast) and target.style == "static":
        base, operand = target.type.base, target.value
    if base is None or not isinstance(operand, Unary) or not isinstance(operand.operand, Name):
        return None
    if operand.op not in ("&", "*"):
        return None
    pointer = operand.op == "*"
    type_ = TypeName(base.at, base, int(pointer), reference=not pointer, dims=tuple(reversed(dims)), to_array=pointer)
    return Decl(node.at, end, type_, operand.operand.name, node.value, "=", frozenset())


def _as_comparison(call: Call) -> Node | None:
    """`i < size<1>(t)`, which the parser reads as a call of `i<(size < 1)>`; None for other calls."""
    callee = call.callee
    if not isinstance(callee, Name) or not callee.targs or call.launch is not None:
        return None
    first, *rest = callee.targs
    right = _restore_template(first, tuple(rest), call)
    return None if right is None else _compare(Name(callee.at, callee.name, None, callee.scope), right, call.at)


def _restore_template(node: Node, rest: tuple[Node, ...], call: Call) -> Node | None:
    """`node` with its last `name < value` made a call `name<value>(arguments)`; None if there is none."""
    if not isinstance(node, Binary):
        return None
    if node.op == "<":
        return _call_last(node.left, (node.right, *rest), call)
    right = _restore_template(node.right, rest, call)
    return None if right is None else Binary(node.at, node.op, node.left, right)


def _call_last(node: Node, targs: tuple[Node, ...], call: Call) -> Node | None:
    if isinstance(node, Binary):
        right = _call_last(node.right, targs, call)
        return None if right is None else Binary(node.at, node.op, node.left, right)
    if isinstance(node, Name) and node.targs is None:
        return Call(node.at, call.end, Name(node.at, node.name, targs, node.scope), call.args)
    return None


def _compare(left: Node, right: Node, at: int) -> Node:
    """`left < right`, where `right` may hold operators that bind less tightly."""
    if isinstance(right, Binary) and right.op in ("&&", "||", "==", "!=", "&", "|", "^"):
        return Binary(right.at, right.op, _compare(left, right.left, at), right.right)
    return Binary(at, "<", left, right)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\n": ""}


def decode(text: str) -> str:
    """A literal's characters with its simple escapes decoded."""
    if "\\" not in text:
        return text
    return re.sub(r"\\([\s\S])", lambda m: _ESCAPES.get(m.group(1), m.group(1)), text)


def _join(scope: str, name: str) -> str:
    return f"{scope}::{name}" if scope else name


def _under(scope: Name, name: Name) -> Name:
    """`name` with `scope` put before its own outermost scope."""
    if name.scope is None:
        return Name(name.at, name.name, name.targs, scope)
    return Name(name.at, name.name, name.targs, _under(scope, name.scope))


def _anonymous(body: ts.Node, classes: list[Class]) -> list[Decl]:
    """Members without a name: unions and structs whose own members belong to the class around them."""
    unnamed = {
        f"<{kind.start_byte}>"
        for child in body.named_children
        if child.type == "field_declaration"
        and child.child_by_field_name("declarator") is None
        and (kind := child.child_by_field_name("type")) is not None
        and kind.child_by_field_name("name") is None
    }
    return [
        Decl(one.at, one.end, TypeName(one.at, Name(one.at, one.name)), one.name, None, "", frozenset())
        for one in classes
        if one.name in unnamed
    ]


def _is_declarator(node: ts.Node) -> bool:
    return node.type.endswith("declarator") or node.type in ("identifier", "field_identifier", "type_identifier")


def _function_declarator(node: ts.Node) -> ts.Node | None:
    """The function declarator in a declarator that declares a function, None for variables and function pointers."""
    steps = 0
    while steps < MAX_DEPTH:
        steps += 1
        if node.type == "function_declarator":
            inner = node.child_by_field_name("declarator")
            return node if inner is not None and inner.type != "parenthesized_declarator" else None
        if node.type not in ("pointer_declarator", "reference_declarator", "attributed_declarator"):
            return None
        following = node.child_by_field_name("declarator")
        if following is None:
            following = next((c for c in node.named_children if _is_declarator(c)), None)
        if following is None:
            return None
        node = following
    return None


def _bindings(node: ts.Node) -> list[ts.Node]:
    """The names of a structured binding, [] for anything else."""
    steps = 0
    current: ts.Node | None = node
    while current is not None and steps < MAX_DEPTH:
        steps += 1
        if current.type == "structured_binding_declarator":
            return [c for c in current.named_children if c.type == "identifier"]
        inner = current.child_by_field_name("declarator")
        if inner is None:
            inner = next((c for c in current.named_children if c.type.endswith("declarator")), None)
        current = inner
    return []


def _descend(node: ts.Node) -> Iterator[ts.Node]:
    stack = [node]
    while stack:
        one = stack.pop()
        yield one
        stack.extend(reversed(one.named_children))


def error_spans(root: ts.Node) -> list[tuple[int, int]]:
    """Where the parser failed: spans of ERROR and missing nodes, in order."""
    spans: list[tuple[int, int]] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "ERROR" or node.is_missing:
            spans.append((node.start_byte, max(node.end_byte, node.start_byte + 1)))
        elif node.has_error:
            stack.extend(reversed(node.children))
    return spans


def parse_expression(text: str) -> tuple[Node, ...]:
    """The expressions of a comma-separated list that stands on its own."""
    prepared = f"int d2k_[] = {{{text}}};"
    if not prepared.isascii():
        return ()
    root = parse_tree(prepared).root_node
    if root.has_error:
        return ()
    items = Converter(prepared).unit(root)
    init = items.variables[0][1].init if items.variables else None
    return init.items if isinstance(init, Init) else ()
