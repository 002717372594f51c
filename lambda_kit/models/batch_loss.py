"""What a world model loses on one batch, in the form in which posteriors minimise it."""

import dataclasses
from typing import Any

from lambda_kit import core
from lambda_kit import types


@dataclasses.dataclass(frozen=True)
class BatchLoss(core.EnsembleLoss):
  """The losses of `world_model` on `batch`."""

  world_model: core.WorldModel
  batch: types.Trajectory  # [B, L, ...]
  over_batch: core.OverBatch = lambda function: function

  def __call__(self, params: core.Params, key: core.Key) -> tuple[types.Array, Any]:
    return self.world_model.loss(params, self.batch, key, self.over_batch)

  def of_member(self, theta: core.Params, output: types.ModelOutput, key: core.Key) -> types.Array:
    return self.world_model.member_loss(theta, output, self.batch, key, self.over_batch)

  @property
  def episodes(self) -> types.Array | None:
    return None if self.batch.episode is None else self.batch.episode[:, 0]
