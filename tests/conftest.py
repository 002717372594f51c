"""Settings that all tests share."""

import importlib.metadata
import os
import pathlib
import signal

# One compilation cache for all tests and runs of tests.
_CACHE = pathlib.Path(__file__).resolve().parents[1] / '.cache' / 'jax'
os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', str(_CACHE))
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')
# Compiling is most of the time, and the code is used for seconds. The HLO and what it computes stay the same.
os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
# XLA's older code generator takes half the time for such code. Another version may not know the flag, and refuse it.
_XLA_FLAGS = os.environ.get('XLA_FLAGS', '')
if importlib.metadata.version('jaxlib').startswith('0.10.') and 'fusion_emitters' not in _XLA_FLAGS:
  os.environ['XLA_FLAGS'] = f'{_XLA_FLAGS} --xla_cpu_use_fusion_emitters=false'.lstrip()
os.environ.setdefault('JAX_NUMPY_RANK_PROMOTION', 'raise')

# Shells start background jobs with interrupts ignored, and children inherit that: tests that interrupt runs could not.
signal.signal(signal.SIGINT, signal.default_int_handler)
