"""Schemathesis over /openapi.json: bodies that it allows and bodies that it doesn't.

No answer has a status or a content type that the operation doesn't list by itself ("default" doesn't count), a server's
error least of all, and each is of the schema that stands there.
"""

import sys
import time

import hypothesis
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (content_type_conformance,
                                               response_schema_conformance)

from cases import base_url

EXAMPLES = 15  # of each operation and mode
# They never end, or wait for the agent that this gateway has not.
LEFT_OUT = {("get", "/dashboard/api/events")}
MODELS = ["tiny", "mirror", "embedder", "script-hermes", "unknown", None]


def check(session, url, operation, case, model):
    if model is not None and isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = model
    response = case.call(base_url=url, session=session, timeout=20)
    listed = operation.definition.raw["responses"]
    shown = f"{case.as_curl_command()}\n{response.status_code} {response.content[:500]}"
    assert str(response.status_code) in listed, shown
    assert response.status_code != 500, shown
    try:
        case.validate_response(response, checks=[content_type_conformance,
                                                 response_schema_conformance])
    except BaseException:
        print(shown)
        raise
    return response.status_code


def fuzz(session, url, operation, mode, seen):
    is_served = "200" in operation.definition.raw["responses"]

    @hypothesis.seed(1)
    @hypothesis.settings(max_examples=EXAMPLES if is_served else 2, deadline=None, database=None,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(operation.as_strategy(generation_mode=mode), st.sampled_from(MODELS))
    def each(case, model):
        status = check(session, url, operation, case, model)
        seen[status] = seen.get(status, 0) + 1
    try:
        each()
    except hypothesis.errors.Unsatisfiable:
        pass  # any body will do
    except BaseException:
        print(f"FAILED: {operation.method} {operation.path} ({mode.value})")
        raise


def main():
    url = base_url()
    schema = schemathesis.openapi.from_url(url + "/openapi.json")
    session = requests.Session()
    begun, seen, operations = time.monotonic(), {}, 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if (operation.method, operation.path) in LEFT_OUT:
            continue
        operations += 1
        for mode in schemathesis.GenerationMode:
            if mode is schemathesis.GenerationMode.NEGATIVE and not operation.body:
                continue  # nothing of it can be wrong
            fuzz(session, url, operation, mode, seen)
    counts = ", ".join(f"{count} of {status}" for status, count in sorted(seen.items()))
    print(f"openapi: {operations} operations, {sum(seen.values())} answers ({counts}) in "
          f"{time.monotonic() - begun:.0f} s")
    if not seen.get(200) or not seen.get(400):
        sys.exit("the cases are too one-sided to say anything")


if __name__ == "__main__":
    main()
