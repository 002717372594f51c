"""Settings that all tests share."""

import os
import pathlib
import signal

# One compilation cache for all tests and runs of tests.
_CACHE = pathlib.Path(__file__).resolve().parents[1] / '.cache' / 'jax'
os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', str(_CACHE))
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')
# Compiling is most of the time, and the code is used for seconds. The HLO and what it computes stay the same.
os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
os.environ.setdefault('JAX_NUMPY_RANK_PROMOTION', 'raise')

# Shells start background jobs with interrupts ignored, and children inherit that: tests that interrupt runs could not.
signal.signal(signal.SIGINT, signal.default_int_handler)
