"""A chunk as a document of the lexical index, and the fields of one (see lexical.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tantivy import Document, Schema, SchemaBuilder

from mempalace.palace.tokens import identifiers


@dataclass(frozen=True, slots=True)
class Entry:
    """What is indexed of a chunk. `text` is the chunk with its header, as `chunk.index_text` gives it."""

    chunk: int
    text: str
    kind: str
    scope: str
    format: str
    projects: tuple[str, ...]
    roles: tuple[str, ...]
    session: int
    time: float | None
    wing: str | None = None
    last: float | None = None


def schema() -> Schema:
    """The fields."""
    builder = SchemaBuilder()
    builder.add_unsigned_field("chunk", indexed=True, fast=True)
    builder.add_text_field("words", tokenizer_name="words", index_option="position")
    builder.add_text_field("whole", tokenizer_name="whole", index_option="basic")
    builder.add_text_field("chars", tokenizer_name="chars", index_option="position")
    for name in ("kind", "scope", "format", "project", "wing", "role"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("session", indexed=True)
    builder.add_integer_field("time", indexed=True, fast=True)
    builder.add_integer_field("last", indexed=True, fast=True)
    return builder.build()


def document(entry: Entry) -> Document:
    """What is indexed of a chunk."""
    document = Document()
    document.add_unsigned("chunk", entry.chunk)
    document.add_text("words", entry.text)
    names, parts = identifiers(entry.text)
    if names:
        document.add_text("whole", " ".join(names))
    if parts:
        document.add_text("words", " ".join(parts))
    if not entry.text.isascii():
        document.add_text("chars", entry.text)
    document.add_text("kind", entry.kind)
    document.add_text("scope", entry.scope)
    document.add_text("format", entry.format)
    for project in entry.projects:
        document.add_text("project", project)
    if entry.wing is not None:
        document.add_text("wing", entry.wing)
    for role in entry.roles:
        document.add_text("role", role)
    document.add_unsigned("session", entry.session)
    if entry.time is not None:
        document.add_integer("time", math.floor(entry.time))
    last = entry.time if entry.last is None else entry.last
    if last is not None:
        document.add_integer("last", math.floor(last))
    return document
