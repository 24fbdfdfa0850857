"""Figures of a log, counted by hand: a few loops over its JSON, nothing of the package.

    python derive.py LOG ...

Prints one JSON object per log. figures.json holds what came out, under the names of the logs.

Claude Code writes one line per content block. Lines of one answer share `message.id`, and each repeats the usage of the
answer so far: the greatest of each count is the answer's. A prompt of a person is a `user` line that is no tool result,
no reminder of the client (`isMeta`), no summary, and does not begin with one of the client's tags.
Gemini CLI's older form is one JSON document; `input` counts the cached tokens in, and thoughts are output.
"""

import json
import sys

# US dollars per million tokens: fresh input, output, written to the cache, read from it.
PRICES = {
    "claude-sonnet-4-20250514": (3, 15, 3.75, 0.3),
    "claude-opus-4-6": (5, 25, 6.25, 0.5),
    "claude-opus-4-5": (5, 25, 6.25, 0.5),
    "claude-opus-4-5-20251101": (5, 25, 6.25, 0.5),
    "claude-sonnet-4-5-20250929": (3, 15, 3.75, 0.3),
    "gemini-2.5-flash": (0.3, 2.5, 0, 0.03),
    "gemini-3-flash-preview": (0.5, 3, 0, 0.05),
}
CLIENT_TAGS = ("<command-", "<local-command-", "<system-reminder", "Caveat: The messages below", "[Request interrupted")


def claude(lines):
    answers, calls, failed, chars, results = {}, {}, set(), {}, 0
    people, models = 0, set()
    for line in lines:
        if not line.strip():
            continue
        record = json.loads(line)
        if record.get("isSidechain") or record.get("type") not in ("user", "assistant"):
            continue
        message = record["message"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if record["type"] == "assistant":
            if message["model"] == "<synthetic>":
                continue
            models.add(message["model"])
            usage = answers.setdefault(message["id"], {})
            for name in (
                "input_tokens",
                "output_tokens",
                "cache_read_input_tokens",
                "cache_creation_input_tokens",
            ):
                usage[name] = max(usage.get(name, 0), message["usage"].get(name) or 0)
            for block in blocks:
                if block["type"] == "tool_use":
                    calls[block["id"]] = block["name"]
            continue
        found = [block for block in blocks if block["type"] == "tool_result"]
        results += len(found)
        for block in found:
            if block.get("is_error"):
                failed.add(block["tool_use_id"])
            text = block.get("content") or ""
            if not isinstance(text, str):
                text = "\n".join(part["text"] for part in text if part["type"] == "text")
            chars[block["tool_use_id"]] = len(text)
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        if found or record.get("isMeta") or record.get("isCompactSummary"):
            continue
        people += any(not text.lstrip().startswith(CLIENT_TAGS) for text in texts)
    assert len(models) == 1
    total = [sum(usage[name] for usage in answers.values()) for name in ("input_tokens", "output_tokens")]
    total += [sum(usage["cache_creation_input_tokens"] for usage in answers.values())]
    total += [sum(usage["cache_read_input_tokens"] for usage in answers.values())]
    return figures(people, len(answers), results, calls, failed, chars, total, models.pop())


def gemini(document):
    calls, failed, chars = {}, set(), {}
    people = answers = 0
    total = [0, 0, 0, 0]
    models = set()
    for message in document["messages"]:
        people += message["type"] == "user"
        if message["type"] != "gemini":
            continue
        answers += 1
        models.add(message["model"])
        tokens = message["tokens"]
        total[0] += tokens["input"] - tokens["cached"]
        total[1] += tokens["output"] + tokens["thoughts"]
        total[3] += tokens["cached"]
        for call in message.get("toolCalls", []):
            calls[call["id"]] = call["name"]
            if call["status"] == "error":
                failed.add(call["id"])
            response = call["result"][0]["functionResponse"]["response"]
            chars[call["id"]] = len(response.get("output", response.get("error", "")))
    assert len(models) == 1
    return figures(people, answers, len(calls), calls, failed, chars, total, models.pop())


def figures(people, answers, results, calls, failed, chars, total, model):
    tools = {}
    for ident, name in calls.items():
        one = tools.setdefault(name, {"calls": 0, "errors": 0, "output_chars": 0})
        one["calls"] += 1
        one["errors"] += ident in failed
        one["output_chars"] += chars.get(ident, 0)
    paid = [count * price / 1e6 for count, price in zip(total, PRICES[model], strict=True)]
    return {
        "messages": {"user": people, "assistant": answers, "tool": results},
        "tools": dict(sorted(tools.items())),
        "tokens": dict(zip(("input", "output", "cache_create", "cache_read"), total, strict=True)),
        "model": model,
        "cost": round(sum(paid), 4),
        "cache_savings": round(total[3] * (PRICES[model][0] - PRICES[model][3]) / 1e6, 4),
    }


def derive(text):
    if text.startswith("{\n"):
        return gemini(json.loads(text))
    return claude(text.splitlines())


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            print(json.dumps(derive(file.read())))  # noqa: T201 - its output is what it is for
