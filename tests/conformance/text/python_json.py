"""Whether the table that both readers of JSON are held to says what Python's json does.

    python_json.py TABLE
"""

import json
import math
import sys

LARGEST = sys.float_info.max


def strict(value):
    """In the words that every JSON has: no NaN, no infinities, no halves of surrogate pairs."""
    if isinstance(value, dict):
        return {strict(key): strict(member) for key, member in value.items()}
    if isinstance(value, list):
        return [strict(member) for member in value]
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, float):
        return None if math.isnan(value) else max(-LARGEST, min(LARGEST, value))
    if isinstance(value, int) and abs(value) > 1 << 64:
        return LARGEST if value > LARGEST else float(value)
    return value


def main():
    wrong = 0
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        try:
            value = strict(json.loads(case["text"]))
            equal = not case.get("refused") and value == case["value"]
        except ValueError:
            equal = case.get("refused", False)
        if not equal:
            wrong += 1
            print(f"python_json_cases.json is wrong about {case['text']!r}")
    print(f"JSON as Python reads it: {len(cases)} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
