"""Claude Code."""

from mempalace.formats.claude_code.format import ClaudeCode

__all__ = ["ClaudeCode"]
