"""The part of a report that is small enough to be kept in a repository."""

import pathlib
import re

from absl import logging

from lambda_kit import files
from lambda_kit import reading
from lambda_kit.analysis.reports import collection as collection_lib

_MAX_BYTES = 100_000_000
_MAX_VIDEO_BYTES = 1_000_000
_KEPT = ('scores.json', 'evaluations.json', 'tables/runs.md', 'tables/calibration.md', 'tables/paired.md')


def write_archive(collected: collection_lib.Collection, report_folder: pathlib.Path, out: pathlib.Path) -> list[str]:
  """Copies numbers, learning curves and configurations, without the page and without large files.

    out/scores.json, out/evaluations.json, out/runs.md   every seed, as in the report
    out/calibration.md                                    how well models knew costs, if they said
    out/paired.md                                         differences between algorithms, paired by seed
    out/learning_curves_1.png, ...
    out/config/<task>_<algorithm>.gin                     bindings of the group's first seed, with their sources
    out/<task>_<algorithm>.mp4, <task>_<algorithm>_prediction.png   of the same seed, if the agent has a model
    out/calibration/<task>_<algorithm>_seed<n>.json       of every seed with a calibration,
    out/<task>_<algorithm>_calibration.png                and the figure of the first one

  Args:
    collected: The report's runs.
    report_folder: The report's folder.
    out: Where to copy to. Files of the same names are replaced.

  Returns:
    Names of the files. Those that are too large, or no regular files, are left out with a warning.
  """
  pictures = sorted((report_folder / 'figures').glob('learning_curves_*.png'))
  kept = {pathlib.PurePath(name).name: report_folder / name for name in _KEPT if (report_folder / name).exists()}
  kept |= {picture.name: picture for picture in pictures}
  for group in collected.groups:
    name = re.sub(r'[^a-z0-9]+', '_', f'{group.task} {group.algorithm}'.lower()).strip('_')
    folder = group.runs[0].folder
    kept[f'config/{name}.gin'] = folder / 'config.gin'
    if (prediction := folder / 'prediction.png').exists():
      kept[f'{name}_prediction.png'] = prediction
      kept[f'{name}.mp4'] = folder / 'video.mp4'
    for run in group.runs:
      results = run.folder / 'evaluation'
      calibrations = sorted(results.glob('*-calibration.json'))  # In order of steps.
      if calibrations and not results.is_symlink():
        kept[f'calibration/{name}_seed{run.identity.seed}.json'] = calibrations[-1]
        if run is group.runs[0]:
          kept[f'{name}_calibration.png'] = calibrations[-1].with_suffix('.png')
  written = []
  for name, source in kept.items():
    try:
      content = reading.read_bytes(source, _MAX_VIDEO_BYTES if source.suffix == '.mp4' else _MAX_BYTES)
    except FileNotFoundError:
      continue
    except (OSError, reading.RefusedError) as error:
      logging.warning('Left out of the archive: %s', error)
      continue
    files.write_atomically(out / name, content)
    written.append(name)
  return written
