"""The job script of docs/sweeps.md, with stand-ins for SLURM's commands and a real run that gets a real signal."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import textwrap
import time

from lambda_kit.analysis import run_record
from tests.faults import runs


def _script() -> str:
  text = (runs.ROOT / 'docs' / 'sweeps.md').read_text('utf-8')
  return textwrap.dedent(text[text.index('    #!/bin/bash') :].partition('\n\n')[0])


def _add_commands(folder: pathlib.Path, workdir: pathlib.Path) -> None:
  run = [sys.executable, '-m', 'lambda_kit', 'run', *runs.RANDOM, f'--workdir={workdir}']
  for name, script in {
    'srun': 'exec "$@"',
    'lambda-kit': f'echo $$ > {folder}/pid; cd {runs.ROOT}; exec {shlex.join(run)}',
    'scontrol': f'echo "$@" >> {folder}/requeued',
  }.items():
    (folder / name).write_text(f'#!/bin/sh\n{script}\n')
    (folder / name).chmod(0o755)


def test_a_job_that_is_warned_is_queued_again_and_goes_on(tmp_path):
  workdir = tmp_path / 'run'
  _add_commands(tmp_path, workdir)
  environment = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_ID': '71'}
  command = ['bash', '-c', _script()]
  job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
  while runs.log_size(workdir) < 1000 and job.poll() is None:  # Bytes of five episodes.
    time.sleep(0.001)
  os.kill(int((tmp_path / 'pid').read_text()), signal.SIGUSR1)
  output, _ = job.communicate(timeout=120)
  assert job.returncode == 75 and (tmp_path / 'requeued').read_text() == 'requeue 71\n', output
  assert 'To resume' in output and 'Traceback' not in output and not run_record.is_finished(workdir)
  done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
  assert 'Resuming from step' in done.stdout and run_record.is_finished(workdir)
  assert (tmp_path / 'requeued').read_text() == 'requeue 71\n'
