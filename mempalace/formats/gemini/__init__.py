"""Gemini CLI."""

from mempalace.formats.gemini.format import Gemini

__all__ = ["Gemini"]
