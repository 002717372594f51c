"""Imports everything that gin files may name. A gin file adds components of its own by an `import` statement."""

# pylint: disable=unused-import
from lambda_kit.agents import random_agent
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import gymnasium_task
from lambda_kit.environments.safety_gym import environment
from lambda_kit.experiments import run
from lambda_kit.experiments import schedules
