"""Tool calls and tool outputs of Codex -> ToolUse and ToolResult. Pure functions that never raise.

Names of items and fields follow codex-rs (`protocol/src/models.rs`, `items.rs`, `protocol.rs`, up to 0.151).
"""

from __future__ import annotations

import re
from typing import Any

from mempalace.formats.codex.items import (
    Json,
    as_dict,
    as_str,
    as_text,
    images_of,
    named,
    read_content,
    read_image,
    texts_of,
)
from mempalace.model import Image, Text, ToolResult, ToolUse
from mempalace.records import Record
from mempalace.values import loads

CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "tool_search_call",
        "image_generation_call",
        "tool_call",
    }
)
OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "mcp_tool_call_output",
        "tool_search_output",
        "tool_result",
        "function_result",
    }
)


def read_arguments(arguments: Any) -> Any:
    """Decoded arguments of a function call: a JSON string -> its value, bad JSON -> {"raw": text}."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    if not arguments.strip():
        return {}
    try:
        return loads(arguments)
    except ValueError:
        return {"raw": arguments}


def _read_free_input(text: Any) -> Any:
    """Input of a custom (freeform) tool: an object if it is one, else {"raw": text}."""
    if not isinstance(text, str):
        return {} if text is None else text
    if text.lstrip().startswith("{"):
        try:
            return loads(text)
        except ValueError:
            pass
    return {"raw": text}


def _tool_name(item: Json) -> str:
    name = as_str(item.get("name")) or as_str(as_dict(item.get("function")).get("name")) or "unknown"
    space = as_str(item.get("namespace"))
    if space is None or name.startswith(space):
        return name
    if space.startswith("mcp__"):
        return f"{space.rstrip('_')}__{name}"
    return f"{space}.{name}"


def read_call(kind: str, item: Json) -> ToolUse:
    """The tool call of a response item of one of the `CALLS` kinds."""
    call_id = as_str(item.get("call_id")) or as_str(item.get("id")) or ""
    if kind == "function_call" and "arguments" in item:
        return ToolUse(call_id, _tool_name(item), read_arguments(item["arguments"]))
    if kind == "custom_tool_call":
        return ToolUse(call_id, _tool_name(item), _read_free_input(item.get("input")))
    if kind == "local_shell_call":
        return ToolUse(call_id, "local_shell", as_dict(item.get("action")))
    if kind == "web_search_call":
        return ToolUse(call_id, "web_search", as_dict(item.get("action")))
    if kind == "tool_search_call":
        return ToolUse(call_id, "tool_search", read_arguments(item.get("arguments")))
    if kind == "image_generation_call":
        return ToolUse(call_id, "image_generation", {"prompt": as_text(item.get("revised_prompt"))})
    arguments = item.get("arguments")
    if arguments is None:
        # Hand-written logs of other tools have the command only as `input`, or as a `summary` of it.
        known = {name: item[name] for name in ("input", "summary") if name in item}
        return ToolUse(call_id, _tool_name(item), known)
    return ToolUse(call_id, _tool_name(item), read_arguments(arguments))


# --- tool outputs -------------------------------------------------------------------------------------------

_HEADER_CHARS = 600
_EXIT_LINE = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d+)", re.MULTILINE)
_FAILED_STARTS = (
    "failed ",
    "failed:",
    "execution error",
    "aborted by user",
    "apply_patch verification failed",
    "Script failed",
)


def read_output(kind: str, item: Json, record: Record) -> ToolResult:
    """The result in a response item of one of the `OUTPUTS` kinds, whole; `is_error` is None where it is not said.

    Shapes: a text, content items, `{content, success}`, and the JSON text `{"output", "metadata": {"exit_code"}}`
    of the old `shell` and `apply_patch`, of which the output itself is kept.
    """
    call_id = as_str(item.get("call_id")) or as_str(item.get("id")) or ""
    if kind == "tool_search_output":
        failed = True if item.get("status") == "failed" else None
        return ToolResult(call_id, as_text(item.get("tools")), failed)
    output = item.get("output", item.get("result"))
    content, images, is_error = _read_result(output, record)
    if isinstance(success := item.get("success"), bool):
        is_error = not success
    return ToolResult(call_id, content, is_error, tuple(images))


def _read_result(output: Any, record: Record) -> tuple[str, list[Image], bool | None]:
    if isinstance(output, str):
        if output.startswith("{") and '"exit_code"' in output[-_HEADER_CHARS:]:
            try:
                decoded = loads(output)
            except ValueError:
                decoded = None
            if isinstance(decoded, dict) and isinstance(decoded.get("output"), str):
                return decoded["output"], [], _outcome(decoded)
        return output, [], text_outcome(output)
    if isinstance(output, dict):
        return _read_object(output, record)
    if isinstance(output, list):
        blocks = read_content(output, record)
        texts = [block.text for block in blocks if isinstance(block, Text)]
        return "\n".join(texts), images_of(blocks), text_outcome(texts[0]) if texts else None
    return as_text(output), [], None


def _read_object(output: Json, record: Record) -> tuple[str, list[Image], bool | None]:
    is_error = _outcome(output)
    for name in ("content", "output"):
        if name in output:
            content, images, inner = _read_result(output[name], record)
            return content, images, inner if is_error is None else is_error
    blocks = read_content(output, record)
    if blocks:
        return "\n".join(texts_of(blocks)), images_of(blocks), is_error
    return as_text(output), [], is_error


def _outcome(value: Json) -> bool | None:
    """Whether an object that reports an outcome reports an error."""
    for name in ("success", "isError", "is_error"):
        if isinstance(flag := value.get(name), bool):
            return not flag if name == "success" else flag
    for holder in (value, as_dict(value.get("metadata"))):
        for name in ("exit_code", "exitCode"):
            if isinstance(code := holder.get(name), int) and not isinstance(code, bool):
                return code != 0
    return None


def text_outcome(text: str) -> bool | None:
    """What the header lines above `Output:`, or a known beginning, say of the outcome; None if nothing.

    A command that still runs ("Process running with session ID 3") has no outcome yet.
    """
    if text.startswith(_FAILED_STARTS):
        return True
    head = text[:_HEADER_CHARS]
    at = head.find("Output:")
    if at < 0 or (at > 0 and head[at - 1] != "\n"):
        return None
    if found := _EXIT_LINE.search(head, 0, at):
        return int(found.group(1)) != 0
    return False if head.startswith("Script completed") else None


# --- tool events --------------------------------------------------------------------------------------------

_COLLAB_NAMES = {
    "collab_agent_spawn_end": "spawn_agent",
    "collab_agent_interaction_end": "send_input",
    "collab_waiting_end": "wait_agent",
    "collab_close_end": "close_agent",
    "collab_resume_end": "resume_agent",
}
_STATUS_ERRORS = {"completed": False, "success": False, "failed": True, "declined": True}


def read_tool_event(kind: str, item: Json, record: Record) -> tuple[ToolUse, ToolResult | None] | None:
    """The call and the result that an event (or a completed item) tells of; None if it is no tool's.

    The kinds are those of event messages (`exec_command_end`) and of turn items (`CommandExecution`), which
    tell the same.
    """
    call_id = as_str(item.get("call_id")) or as_str(item.get("callId")) or as_str(item.get("id")) or ""
    if kind in ("exec_command_end", "CommandExecution"):
        return _command(call_id, item)
    if kind in ("mcp_tool_call_end", "McpToolCall"):
        return _mcp(call_id, item, record)
    if kind in ("patch_apply_end", "FileChange"):
        output = "\n".join(text for name in ("stdout", "stderr") if (text := as_str(item.get(name))))
        use = ToolUse(call_id, "apply_patch", {"changes": item.get("changes")})
        return use, ToolResult(call_id, output, _event_outcome(item))
    if kind in ("web_search_end", "WebSearch", "Extension"):
        return _search(call_id, kind, item)
    if kind in ("image_generation_end", "ImageGeneration"):
        return read_generated_image(call_id, item, record)
    if kind in ("view_image_tool_call", "ImageView"):
        return ToolUse(call_id, "view_image", {"path": item.get("path")}), None
    if kind == "dynamic_tool_call_request":
        return ToolUse(call_id, as_text(item.get("tool")), read_arguments(item.get("arguments"))), None
    if kind in ("dynamic_tool_call_response", "DynamicToolCall"):
        return _dynamic(call_id, item, record)
    if kind in _COLLAB_NAMES:
        return _collab(call_id, _COLLAB_NAMES[kind], item)
    if kind == "CollabAgentToolCall":
        return _collab(call_id, as_text(item.get("tool")), item)
    return None


def _event_outcome(item: Json) -> bool | None:
    outcome = _outcome(item)
    status = item.get("status")
    return _STATUS_ERRORS.get(status) if outcome is None and isinstance(status, str) else outcome


def _command(call_id: str, item: Json) -> tuple[ToolUse, ToolResult]:
    known = {"command": item.get("command"), "workdir": item.get("cwd")}
    content = as_str(item.get("aggregated_output")) or as_str(item.get("formatted_output"))
    if content is None:
        content = "".join(as_text(item.get(name)) for name in ("stdout", "stderr"))
    return ToolUse(call_id, "shell", known), ToolResult(call_id, content, _event_outcome(item))


def _mcp(call_id: str, item: Json, record: Record) -> tuple[ToolUse, ToolResult]:
    call = as_dict(item.get("invocation")) or item
    use = ToolUse(
        call_id, f"mcp__{as_text(call.get('server'))}__{as_text(call.get('tool'))}", call.get("arguments") or {}
    )
    result = item.get("result")
    if isinstance(result, dict) and "Err" in result:
        return use, ToolResult(call_id, as_text(result["Err"]), True)
    if item.get("error"):
        error = item["error"]
        return use, ToolResult(call_id, as_text(as_dict(error).get("message") or error), True)
    content, images, is_error = _read_result(as_dict(result).get("Ok", result), record)
    outcome = _event_outcome(item) if is_error is None else is_error
    # `isError` may be left out of a result that is none (MCP: it defaults to false).
    return use, ToolResult(
        call_id, content, False if outcome is None and result is not None else outcome, tuple(images)
    )


def _search(call_id: str, kind: str, item: Json) -> tuple[ToolUse, ToolResult | None]:
    name = as_str(item.get("kind")) if kind == "Extension" else None
    known = {key: item[key] for key in ("query", "action") if item.get(key)}
    use = ToolUse(call_id, name or "web_search", known)
    results = item.get("results")
    return use, ToolResult(call_id, as_text(results), False) if results else None


def read_generated_image(call_id: str, item: Json, record: Record) -> tuple[ToolUse, ToolResult | None]:
    """The call of the image generator, and its image (base64 in `result`, or a saved file)."""
    use = ToolUse(call_id, "image_generation", {"prompt": as_text(item.get("revised_prompt"))})
    path = as_str(item.get("saved_path"))
    data = as_str(item.get("result"))
    if data is None:
        return use, ToolResult(call_id, "", None, (Image(ref=path),)) if path else None
    found = read_image(data if data.startswith("data:") else f"data:image/png;base64,{data}", record)
    return use, ToolResult(call_id, "", _event_outcome(item), (named(found, path),))


def _dynamic(call_id: str, item: Json, record: Record) -> tuple[ToolUse, ToolResult]:
    use = ToolUse(call_id, as_text(item.get("tool")), read_arguments(item.get("arguments")))
    blocks = read_content(item.get("content_items"), record)
    texts = texts_of(blocks)
    if error := as_str(item.get("error")):
        texts.append(error)
    return use, ToolResult(call_id, "\n".join(texts), _event_outcome(item), tuple(images_of(blocks)))


def _collab(call_id: str, name: str, item: Json) -> tuple[ToolUse, ToolResult | None]:
    asked = ("prompt", "new_thread_id", "receiver_thread_id", "new_agent_role", "receiver_thread_ids")
    known = {key: item[key] for key in asked if item.get(key)}
    told = {key: item[key] for key in ("status", "statuses", "agent_statuses", "agents_states") if item.get(key)}
    return ToolUse(call_id, name, known), ToolResult(call_id, as_text(told), None) if told else None
