"""lambda_kit: gin-configured Haiku components for safe model-based reinforcement learning."""


def load_policy(path, time_limit=None):
  """Reads a policy that `lambda-kit evaluate --export=path` wrote; see `training.exported.ExportedPolicy`.

  policy = lambda_kit.load_policy('exported')  # time_limit=0.1: an action that takes longer, in seconds, is an error.
  policy.reset(seed=0)
  action = policy(observation)
  """
  # Imported here, so that importing a part of lambda_kit doesn't import all that policies need.
  from lambda_kit.training import exported

  return exported.load(path, time_limit)
