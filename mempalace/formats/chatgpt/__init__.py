"""ChatGPT's exports."""

from mempalace.formats.chatgpt.format import ChatGPT

__all__ = ["ChatGPT"]
