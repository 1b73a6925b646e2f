"""Runs the cases of a comparison, as many at once as there are cores, and tells how they came out."""

import multiprocessing
import os
import subprocess
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import mlx.core as mx


def use_cpu():
    mx.set_default_device(mx.cpu)
    mx.disable_compile()  # by the system's compiler, in each process


def outcome_of(difference, case):
    """How far off the case is, or None and why it could not be compared."""
    try:
        return difference(*case), ""
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return None, str(error)


def run_cases(cases, difference, bound_of):
    """difference(*case), which other processes can import, is a share of the largest number, or raises
    RuntimeError; it must be within bound_of(case). How many failed, and the worst of each bound."""
    failed, worst = 0, {}
    # Not by fork: MLX has threads of its own.
    pool = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), use_cpu)
    with pool:
        for case, (off, error) in zip(cases, pool.map(partial(outcome_of, difference), cases)):
            bound, name = bound_of(case), " ".join(map(str, case))
            if off is None:
                print(f"FAILED {name}: {error}", flush=True)
                failed += 1
                continue
            worst[bound] = max(worst.get(bound, 0.0), off)
            if not off <= bound:
                print(f"FAILED {name}: off by {off:.2e}, bound {bound:.0e}", flush=True)
                failed += 1
    return failed, worst
