#!/usr/bin/env python3
"""What the jinja2 package makes of the chat templates of many model families.

    family_templates.py --folder models --out tests/data/templates/families.json
    family_templates.py --folder models --show TEMPLATE [CASE ...]

Each template that `make models` fetches into FOLDER/templates/, and each one inside FOLDER's GGUF files,
renders the conversations below in the environment of the transformers package. The file holds the
variables of every case, and for each template the hash of each text: null where jinja2 refuses, be it by
the template's own raise_exception(). With --show, the texts themselves.
"""

import argparse
import json
import pathlib
import sys

import corpus
import template_cases
from template_cases import CALL, CONVERSATIONS, TOOL_CONVERSATIONS, TOOLS, assistant, system, user

TEXT_CALL = {
    "id": "call_0001a",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris", "days": 2}'},
}
ID_CALL = {**CALL, "id": "abcdefghi"}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


# What clients send beyond plain text: name, messages, tools, and further variables.
MORE = [
    ("developer", [{"role": "developer", "content": "Be brief."}, user("Hi")], None, {}),
    ("content in parts", [user([{"type": "text", "text": "a<b>"}, {"type": "text", "text": "c"}])], None, {}),
    ("system in parts", [system([{"type": "text", "text": "S"}]), user("u")], None, {}),
    ("an image", [user([{"type": "image"}, {"type": "text", "text": "What is it?"}])], None, {}),
    ("content is none", [user("a"), assistant(None, tool_calls=[ID_CALL]), tool("b", tool_call_id="abcdefghi")], TOOLS, {}),
    (
        "ids and names",
        [
            *(system("S"), user("a"), assistant("", tool_calls=[ID_CALL])),
            *(tool("21", tool_call_id="abcdefghi", name="get_weather"), assistant("It is 21."), user("b")),
        ],
        TOOLS,
        {},
    ),
    ("arguments as text", [user("a"), assistant("", tool_calls=[TEXT_CALL]), tool("b", tool_call_id="call_0001a")], TOOLS, {}),
    ("no content key", [user("a"), {"role": "assistant", "tool_calls": [ID_CALL]}, tool("b", tool_call_id="abcdefghi")], TOOLS, {}),
    ("reasoning", [user("a"), assistant("b", reasoning_content="Hm.\n"), user("c")], None, {}),
    ("thinking inside", [user("a"), assistant("<think>\nHm.\n</think>\n\nb"), user("c")], None, {}),
    ("thinking, then a call", [user("a"), assistant("<think>x</think>b", tool_calls=[ID_CALL]), tool("c")], TOOLS, {}),
    ("thinking on", [system("S"), user("a")], None, {"enable_thinking": True, "thinking": True}),
    ("thinking off", [system("S"), user("a")], None, {"enable_thinking": False, "thinking": False}),
    ("effort", [user("a")], TOOLS, {"reasoning_effort": "high", "model_identity": "You are M."}),
    ("a date", [system("S"), user("a")], TOOLS, {"date_string": "1 Jan 2026", "tools_in_user_message": False}),
    ("documents", [user("a")], None, {"documents": [{"title": "T", "text": "D1", "contents": "D1"}, {"title": "U", "text": "é"}]}),
    ("no tools", [user("a")], [], {}),
    ("no messages", [], None, {}),
    ("typed schema", [user("a")], "schema", {}),
    ("long", [turn for i in range(20) for turn in (user(f"q{i} ßÆ"), assistant(f"  a{i}\n"))], None, {}),
]

SCHEMA = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Finds.\nWell.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What", "enum": ["a", "ß"], "default": "a"},
                    "limits": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                    "where": {"type": ["string", "null"], "nullable": True},
                    "options": {
                        "type": "object",
                        "properties": {"deep": {"type": "boolean"}, "rate": {"type": "number", "maximum": 0.5}},
                        "required": ["deep"],
                        "additionalProperties": False,
                    },
                    "either": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"$ref": "#/d"}}}]},
                },
                "required": ["query", "options"],
            },
            "return": {"type": "object", "properties": {"hits": {"type": "integer"}}},
        },
    }
]


def make_cases():
    """Name and variables; every conversation with the prompt for the answer and without."""
    chats = [(name, messages, None, {}) for name, messages in CONVERSATIONS.items()]
    chats += [(name, messages, TOOLS, {}) for name, messages in TOOL_CONVERSATIONS.items()]
    cases = []
    for name, messages, tools, more in chats + MORE:
        for add_generation_prompt in (False, True):
            variables = {
                "messages": messages,
                "tools": SCHEMA if tools == "schema" else tools,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
                "bos_token": "<s>",
                "eos_token": "</s>",
                **more,
            }
            cases.append({"name": name, "variables": variables})
    return cases


def read_templates(folder):
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("templates/*.jinja"))}
    for path in sorted(folder.glob("*.gguf")):
        try:
            sources[path.name] = template_cases.read_template(path)
        except KeyError:
            continue  # a base model has none
    return sources


def render(environment, template, variables):
    """The text, or why there is none."""
    try:
        return template.render(**json.loads(json.dumps(variables))), None
    except Exception as error:  # whatever jinja2 or Python raises: it refuses
        return None, f"{type(error).__name__}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--show")
    parser.add_argument("cases", nargs="*", type=int)
    arguments = parser.parse_args()
    environment = template_cases.make_environment()
    cases = make_cases()
    templates = []
    for name, source in read_templates(arguments.folder).items():
        template = environment.from_string(source)
        if arguments.show == name:
            for i in arguments.cases or range(len(cases)):
                text, error = render(environment, template, cases[i]["variables"])
                print(f"--- {i}, {cases[i]['name']}\n{error if text is None else text}")
        texts = [render(environment, template, case["variables"])[0] for case in cases]
        hashes = [text if text is None else f"{corpus.hash_text(text):016x}" for text in texts]
        templates.append(
            {"name": name, "source": f"{corpus.hash_text(source):016x}", "rendered": hashes}
        )
    if arguments.out:
        total = sum(h is not None for t in templates for h in t["rendered"])
        print(f"{len(templates)} templates, {len(cases)} cases, {total} texts", file=sys.stderr)
        head = json.dumps({"cases": cases}, ensure_ascii=False, indent=0)[:-2]
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in templates)
        arguments.out.write_text(f'{head},\n"templates": [\n{lines}\n]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
