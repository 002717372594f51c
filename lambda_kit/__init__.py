"""lambda_kit: gin-configured Haiku components for safe model-based reinforcement learning."""
