"""The physics that a score was measured under. Scores of different physics are never averaged.

MuJoCo's results change with its minor versions, sometimes by much: contacts, welds, the solver's stopping rule. So the
physics is MuJoCo's major and minor version, such as '3.3', or None for a task that MuJoCo doesn't simulate.

Scores have recorded the version since lambda_kit left MuJoCo 2.3.3, which all tasks had been pinned to. So a score
without a version counts as one under 2.3.3. The built-in CMDP never used MuJoCo: its old and new scores are comparable.
"""

VERSION_BEFORE_RECORDS = '2.3.3'
_WITHOUT_MUJOCO = 'GridCmdp'


def of_version(mujoco_version: str | None) -> str | None:
  """Returns '3.3' for '3.3.7'."""
  return None if mujoco_version is None else '.'.join(mujoco_version.split('.')[:2])


def version_before_records(task: str) -> str | None:
  """Returns the version of MuJoCo behind a score that has no record of it."""
  return None if task == _WITHOUT_MUJOCO else VERSION_BEFORE_RECORDS


def name(physics: str | None) -> str:
  """Returns a physics' name for readers."""
  return 'no MuJoCo' if physics is None else f'MuJoCo {physics}'
