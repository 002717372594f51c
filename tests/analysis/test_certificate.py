"""Certificates as files: they come back as they were, and other files are refused."""

import json
import math

import pytest

from lambda_kit.analysis import certificate


def _make(**options):
  interval = certificate.Interval(0.5, 0.25, 1.0)
  constraint = certificate.Constraint(
    limit=25.0,
    cost_return=certificate.Interval(20.0, 10.0, 30.0),
    raw_forecast_over_observed=interval,
    forecast_over_observed=certificate.Interval(2.0, 1.5, math.inf),
    bound_over_observed=certificate.Interval(math.nan, math.nan, math.nan),
    bound_covered=interval,
    bound_promised=0.75,
    level=2 / 3,
    covered_at_level=interval,
    covered_at_90=interval,
  )
  episode_return = certificate.Interval(21.0, 20.0, 22.0)
  return certificate.Certificate(
    'Tiny', 7, 1000, 20, 10, 2, episode_return, {'hazards': constraint._replace(**options)}
  )


def test_what_is_written_is_read(tmp_path):
  assert certificate.read(tmp_path) is None
  certificate.write(tmp_path, _make())
  text = (tmp_path / 'calibration.json').read_text()
  assert '"cost_return": [ 20.0, 10.0, 30.0 ],\n' in text
  content = json.loads(text)
  assert content['constraints']['hazards']['forecast_over_observed'] == [2.0, 1.5, None]
  found = certificate.read(tmp_path)
  assert certificate.to_json(found) == certificate.to_json(_make()) == content
  read, made = found.constraints['hazards'], _make().constraints['hazards']
  assert read.forecast_over_observed == made.forecast_over_observed and math.isnan(read.bound_over_observed.value)
  certificate.write(tmp_path, _make(level=None, covered_at_level=None))
  assert certificate.read(tmp_path).constraints['hazards'].covered_at_level is None


def test_it_says_what_it_knows():
  text = _make().describe()
  assert 'An episode returns 21 (20 to 22), in 20 new episodes' in text
  assert 'an episode costs 20 (10 to 30), with a limit of 25' in text
  assert 'forecast / observed cost is 2 (1.5 to inf), before any correction 0.5 (0.25 to 1);' in text
  assert 'bound / observed is unknown' in text and 'below the 67% quantile' in text and 'over 2 samples' in text
  assert 'quantile of what the models draw' not in _make(level=None, covered_at_level=None).describe()
  assert str(certificate.Interval(0.5, math.nan, math.nan)) == '0.5'


@pytest.mark.parametrize(
  'change',
  [
    lambda content: content.pop('task'),
    lambda content: content.pop('episode_return'),
    lambda content: content.update(more=1),
    lambda content: content.update(seed=1.5),
    lambda content: content.update(episodes=True),
    lambda content: content.update(constraints=[]),
    lambda content: content['constraints']['hazards'].update(limit='25'),
    lambda content: content['constraints']['hazards'].update(bound_promised=None),
    lambda content: content['constraints']['hazards'].update(cost_return=[1.0, 2.0]),
    lambda content: content['constraints']['hazards'].update(cost_return=[1.0, 2.0, math.inf]),
    lambda content: content['constraints']['hazards'].pop('level'),
  ],
)
def test_other_files_are_refused(tmp_path, change):
  content = certificate.to_json(_make())
  change(content)
  (tmp_path / certificate.NAME).write_text(json.dumps(content))
  with pytest.raises(certificate.CertificateError, match='no certificate'):
    certificate.read(tmp_path)


@pytest.mark.parametrize('text', ['', '[' * 100_000, '[1]', 'null', '"text"', '{"constraints": {}}'])
def test_damaged_files_are_refused(tmp_path, text):
  (tmp_path / certificate.NAME).write_text(text)
  with pytest.raises(certificate.CertificateError):
    certificate.read(tmp_path)
