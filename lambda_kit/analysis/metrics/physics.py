"""Under which physics a score was measured: scores of different ones are never averaged.

MuJoCo's results change with its minor versions, some of them by much: contacts, welds, when its solver stops. So a
physics is MuJoCo's major and minor version, such as '3.3', or None for a task that MuJoCo doesn't simulate.

Runs have recorded the version since lambda_kit left MuJoCo 2.3.3, to which all tasks had been pinned. So a run without
a record counts as one under 2.3.3. The built-in CMDP never used MuJoCo: its runs, old and new, are alike.
"""

VERSION_BEFORE_RECORDS = '2.3.3'
_WITHOUT_MUJOCO = 'GridCmdp'


def of_version(mujoco_version: str | None) -> str | None:
  """'3.3' of '3.3.7'."""
  return None if mujoco_version is None else '.'.join(mujoco_version.split('.')[:2])


def version_before_records(task: str) -> str | None:
  """The version of MuJoCo behind a run or score that has no record of it."""
  return None if task == _WITHOUT_MUJOCO else VERSION_BEFORE_RECORDS


def name(physics: str | None) -> str:
  """For readers."""
  return 'no MuJoCo' if physics is None else f'MuJoCo {physics}'
