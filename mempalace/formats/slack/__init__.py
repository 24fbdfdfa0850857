"""Slack's exports."""

from mempalace.formats.slack.format import Slack

__all__ = ["Slack"]
