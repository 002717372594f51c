"""Imports everything that gin files may name. A gin file adds components of its own by an `import` statement."""

# pylint: disable=unused-import
from lambda_kit.agents import random_agent
from lambda_kit.agents.lambda_agent import builder
from lambda_kit.baselines import builder as on_policy_builder
from lambda_kit.baselines import cpo
from lambda_kit.baselines import ppo
from lambda_kit.baselines import trpo
from lambda_kit.bounds import bounds
from lambda_kit.constraints import augmented_lagrangian
from lambda_kit.constraints import budgets
from lambda_kit.constraints import pid
from lambda_kit.constraints import primal_dual
from lambda_kit.constraints import softplus
from lambda_kit.constraints import unconstrained
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import gymnasium_task
from lambda_kit.environments import isolated
from lambda_kit.environments.safety_gym import environment
from lambda_kit.experiments import distributed_loop
from lambda_kit.experiments import ray_actors
from lambda_kit.experiments import rollout_loop
from lambda_kit.experiments import run
from lambda_kit.experiments import schedules
from lambda_kit.models import gaussian_model
from lambda_kit.models import world_model
from lambda_kit.planners import mpc
from lambda_kit.policies import targets
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import point
from lambda_kit.posteriors import swag
from lambda_kit.posteriors import variational
from lambda_kit.replay import dataset
from lambda_kit.replay import offline
