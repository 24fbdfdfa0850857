"""Codex CLI."""

from mempalace.formats.codex.format import Codex

__all__ = ["Codex"]
