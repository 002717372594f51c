"""lambda_kit: gin-configured Haiku components for safe model-based reinforcement learning."""


def load_policy(path):
  """Reads a policy that `launchers/evaluate.py --export=path` wrote; see `training.exported.ExportedPolicy`.

  policy = lambda_kit.load_policy('exported')
  policy.reset(seed=0)
  action = policy(observation)
  """
  # Here, so that a part of lambda_kit is imported without all that policies need.
  from lambda_kit.training import exported

  return exported.load(path)
