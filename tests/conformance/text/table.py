#!/usr/bin/env python3
"""Holds chat templates against `transformers`: Jinja's rules, and the templates of real models.

A template must give the same bytes, be refused where `transformers` raises, or be refused when it
is loaded, by the name of what it uses. See `run`.
"""

import datetime
import pathlib
import sys
import tempfile

import transformers.utils.chat_template_utils as chat_utils

import jinja_table
import sessions
import template_table
from probe import NOW, FixedDatetime, Probe, Tally

# What Python itself leaves open, and what runtime/text/README.md names: refused when it is met.
OPEN = ("prints as its address", "more than 128 bits", "is up to Python", "not supported",
        "is too large", "too wide")
MESSAGES = [{"role": "user", "content": "Hi"}]
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}


class Templates:
    """The probe's side: each source lies in a folder of its own."""

    def __init__(self, probe, scratch):
        self.probe, self.scratch, self.count = probe, pathlib.Path(scratch), 0

    def add(self, source):
        self.count += 1
        folder = self.scratch / str(self.count)
        folder.mkdir()
        (folder / "chat_template.jinja").write_bytes(source.encode())
        return str(folder)

    def render(self, folder, messages, tools, variables):
        return self.probe.ask(op="render", folder=folder, messages=messages, tools=tools,
                              kwargs=variables, generation=True, time=NOW)


def theirs_of(source, messages, tools, variables):
    # As apply_chat_template hands them on.
    given = [{k: v for k, v in one.items() if v is not None} for one in messages]
    try:
        text = chat_utils.render_jinja_template(
            [given], tools=tools, chat_template=source, add_generation_prompt=True,
            **variables)[0][0]
        text.encode()
        return text
    except Exception as error:  # the template's refusal, or Python's
        return error


def compare(tally, what, ours, theirs):
    refused = ours.get("error", "")
    if isinstance(theirs, Exception):
        tally.refused += 1
        tally.equal(what, bool(refused) or ours, True)
    elif refused and (any(reason in refused for reason in OPEN) or " at 0x" in theirs):
        tally.open += 1
        tally.equal(what, True, True)
    else:
        tally.equal(what, ours.get("text", ours), theirs)


def compare_jinja(templates, tally):
    for source, variables in jinja_table.cases():
        folder = templates.add(source)
        for values in variables:
            shown = source.removeprefix(jinja_table.PRELUDE)
            compare(tally, f"{shown} with {values}",
                    templates.render(folder, MESSAGES, None, values),
                    theirs_of(source, MESSAGES, None, values))


def compare_models(templates, tally, packages):
    count = 0
    for name, source in template_table.templates(packages):
        count += 1
        folder = templates.add(source)
        for session, messages, tools, variables in sessions.sessions():
            variables = {**NAMES, **variables}
            compare(tally, f"{name}: {session}",
                    templates.render(folder, messages, tools, variables),
                    theirs_of(source, messages, tools, variables))
    return count


def main():
    chat_utils.datetime = FixedDatetime
    probe, packages = Probe(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as scratch:
        templates = Templates(probe, scratch)
        models = Tally()
        count = compare_models(templates, models, packages)
        print(f"model templates: {models.compared} renders of {count} templates "
              f"({models.refused} refusals by templates, {models.open} by name), "
              f"{models.different} different", flush=True)
        rules = Tally()
        compare_jinja(templates, rules)
        print(f"jinja table: {rules.compared} renders of {templates.count - count} templates "
              f"({rules.refused} refusals by Jinja, {rules.open} by name), "
              f"{rules.different} different")
    sys.exit(1 if models.different or rules.different else 0)


main()
