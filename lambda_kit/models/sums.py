"""Sums of networks: models whose networks add others to their outputs, such as fixed random ones.

A randomised prior (Osband et al., 2018) adds a random network that is never trained to one that is: the sum fits the
data, and where there are none it stays random. The outputs of two networks are the sum of no single network of their
size, so it is the model that has to add: `over_sums` makes its functions take `Sum`s in the place of parameters.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import haiku as hk

from lambda_kit import core
from lambda_kit import types
from lambda_kit.models import networks


class Term(NamedTuple):
  """A network times a number."""

  params: core.Params
  weight: types.Array | float  # []


class Sum(NamedTuple):
  """In the place of parameters: the output of each `Mlp` is the weighted sum of those with each term's parameters.

  An `Mlp` that some term lacks, and all that is no `Mlp`, is the first term's alone.
  """

  terms: tuple[Term, ...]


def over_sums(apply: Callable[..., Any]) -> Callable[..., Any]:
  """Makes a function of Haiku parameters and anything else accept a `Sum` instead of the parameters."""

  @functools.wraps(apply)
  def apply_sum(params: core.Params | Sum, *args: Any) -> Any:
    if not isinstance(params, Sum):
      return apply(params, *args)
    own, *others = params.terms

    def add(call, args, kwargs, context):
      output = call(*args, **kwargs)
      module = context.module
      if not isinstance(module, networks.Mlp) or context.method_name != '__call__':
        return output
      if not all(_has(term.params, module.module_name) for term in params.terms):
        return output
      output *= own.weight
      for term in others:
        with hk.custom_getter(_getter(term.params), state=False):
          output += term.weight * call(*args, **kwargs)
      return output

    with hk.intercept_methods(add):
      return apply(own.params, *args)

  return apply_sum


def _has(params: core.Params, module_name: str) -> bool:
  return any(name.startswith(f'{module_name}/') for name in params)


def _getter(params: core.Params) -> Callable[..., types.Array]:
  return lambda getter, value, context: params[context.module_name][context.name]
