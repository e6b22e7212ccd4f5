"""One file annotated or cleaned of annotations; bytes in, bytes out."""

from __future__ import annotations

from d2k.analyzers import analyze
from d2k.analyzers.annotate import SyntaxFailure, annotate, parse, remove
from d2k.cli.analysis import target as known_target
from d2k.cli.failure import InputError
from d2k.cli.inputs import MAX_KERNEL_BYTES, read_bytes

BOM = b"\xef\xbb\xbf"


def annotated(path: str, removing: bool, target: str, entry: str) -> tuple[bytes, bytes]:
    """(before, after). Raises InputError where the file is no Python."""
    before = read_bytes(path, MAX_KERNEL_BYTES)
    mark, content = (BOM, before.removeprefix(BOM)) if before.startswith(BOM) else (b"", before)
    try:
        module = remove(parse(content))
    except SyntaxFailure as error:
        raise InputError(f"`{path}` is no Python that can be annotated: {error}.") from error
    if not removing:
        options = analyze.Options(known_target(target), entry)
        text = module.code.replace("\r\n", "\n").replace("\r", "\n")
        report = analyze.report(analyze.read(path, text, options), text, options)
        module = annotate(module, report)
    return before, mark + module.bytes
