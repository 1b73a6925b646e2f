"""Runs the cases of a comparison and tells how they came out."""

import subprocess


def run_cases(cases, difference, bound_of):
    """difference(*case) is a share of the largest number, or raises RuntimeError; it must be within
    bound_of(case). How many failed, and the worst of each bound."""
    failed, worst = 0, {}
    for case in cases:
        bound, name = bound_of(case), " ".join(map(str, case))
        try:
            off = difference(*case)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"FAILED {name}: {error}", flush=True)
            failed += 1
            continue
        worst[bound] = max(worst.get(bound, 0.0), off)
        if not off <= bound:
            print(f"FAILED {name}: off by {off:.2e}, bound {bound:.0e}", flush=True)
            failed += 1
    return failed, worst
