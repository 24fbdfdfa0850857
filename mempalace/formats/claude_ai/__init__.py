"""Claude.ai's exports."""

from mempalace.formats.claude_ai.format import ClaudeAi

__all__ = ["ClaudeAi"]
