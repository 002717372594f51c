"""Imports everything that gin files may name. A gin file adds its own components with an `import` statement."""

from lambda_kit.agents import cautious_agent
from lambda_kit.agents import random_agent
from lambda_kit.agents.lambda_ import builder
from lambda_kit.agents.on_policy import builder as on_policy_builder
from lambda_kit.agents.on_policy import cpo
from lambda_kit.agents.on_policy import ppo
from lambda_kit.agents.on_policy import trpo
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import gymnasium_task
from lambda_kit.environments.processes import isolated
from lambda_kit.environments.safety_gym import environment
from lambda_kit.models import gaussian_model
from lambda_kit.models import world_model
from lambda_kit.planners import mpc
from lambda_kit.policies import targets
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import multiswag
from lambda_kit.posteriors import point
from lambda_kit.posteriors import swag
from lambda_kit.posteriors import variational
from lambda_kit.posteriors import width
from lambda_kit.replay import buffer
from lambda_kit.safety import augmented_lagrangian
from lambda_kit.safety import bounds
from lambda_kit.safety import budgets
from lambda_kit.safety import feedback
from lambda_kit.safety import pid
from lambda_kit.safety import primal_dual
from lambda_kit.safety import recalibration
from lambda_kit.safety import softplus
from lambda_kit.safety import unconstrained
from lambda_kit.training import experiment
from lambda_kit.training import rollout_loop
from lambda_kit.training import schedules
