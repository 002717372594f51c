"""`lambda-kit evaluate` imports nothing that a workdir names, unless it is told to trust."""

import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_code_named_in_a_workdir_runs_only_with_trust(tmp_path):
  (tmp_path / 'their_code.py').write_text("print('THEIRS RUNS')")
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'config.gin').write_text('import their_code\n')
  env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(_ROOT), str(tmp_path)]))
  command = [sys.executable, '-m', 'lambda_kit', 'evaluate', f'--workdir={tmp_path / "run"}']
  refused, trusted = (
    subprocess.run([*command, *flags], env=env, capture_output=True, text=True, timeout=120, check=False)
    for flags in ([], ['--trust'])
  )
  assert refused.returncode == 1 and 'THEIRS' not in refused.stdout
  assert refused.stderr.startswith('error: ') and 'config.gin:1: `import their_code` would run code' in refused.stderr
  assert 'add --trust' in refused.stderr and 'Traceback' not in refused.stderr
  assert 'THEIRS RUNS' in trusted.stdout
