"""Ray: a cluster that is not there, and a real one on the loopback interface that loses a node."""

import socket
import time

import pytest

from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import supervision
from lambda_kit.sweeps import workdirs
from tests.fakes import sweeps as fakes

ray = pytest.importorskip('ray', reason='Ray is not installed: pip install -e .[ray]')
from ray import cluster_utils  # noqa: E402 (without Ray there is none)

from lambda_kit.sweeps import ray_cluster  # noqa: E402 (imports Ray)
from lambda_kit.sweeps import ray_executor  # noqa: E402 (imports Ray)

State = interfaces.State
_NEEDS = interfaces.Needs(cores=1, memory=0.0)


def _free_port():
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    return free.getsockname()[1]


@pytest.mark.parametrize('scheme', ['', 'ray://'])
def test_a_cluster_that_can_not_be_reached_is_told_at_once(scheme):
  start = time.monotonic()
  with pytest.raises(ray_cluster.ClusterMissing, match='no Ray cluster at .*Connection refused.*ray start --head'):
    ray_executor.RayExecutor(_NEEDS, f'{scheme}127.0.0.1:{_free_port()}')
  assert time.monotonic() - start < 15


def test_a_cluster_that_hangs_is_not_waited_for(monkeypatch):
  monkeypatch.setattr(ray_cluster, '_PROBE_SECONDS', 5.0)
  with socket.create_server(('127.0.0.1', 0)) as silent:
    monkeypatch.setenv('RAY_ADDRESS', f'127.0.0.1:{silent.getsockname()[1]}')
    with pytest.raises(ray_cluster.ClusterMissing, match='no Ray cluster at 127.0.0.1:.*it does not answer within 5 s'):
      ray_executor.RayExecutor(_NEEDS)


@pytest.mark.parametrize('address', ['nowhere', 'ray://', 'host:port'])
def test_addresses_that_are_none_are_explained(address):
  with pytest.raises(ray_cluster.ClusterMissing, match=f'no Ray cluster at {address}.*--ray_address=host:port'):
    ray_executor.RayExecutor(_NEEDS, address)


@pytest.mark.slow
def test_a_batch_survives_the_death_of_a_node(tmp_path):
  """Two nodes of two cores; one is killed while it runs two of eight runs. They go on elsewhere, and all is done."""
  cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=dict(num_cpus=0, include_dashboard=False))
  cluster.add_node(num_cpus=2)
  doomed = cluster.add_node(num_cpus=2)
  cluster.wait_for_nodes()
  runs = fakes.make_runs(tmp_path, 8, ['SECONDS = 5'])
  executor = ray_executor.RayExecutor(_NEEDS, cluster.address)
  seen = []

  def on_change(status):
    seen.append((status.run.seed, status.state, status.error))
    # When all four cores are at work, and have got somewhere.
    if sum(state is State.RUNNING for _, state, _ in seen) == 4 and doomed in cluster.list_all_nodes():
      time.sleep(1.5)
      cluster.remove_node(doomed, allow_graceful=False)

  try:
    statuses = supervision.Supervisor(runs, executor, interval=0.1).run(on_change)
    assert [status.state for status in statuses] == [State.DONE] * 8
    lost = [status for status in statuses if status.attempts]
    assert len(lost) == 2 and all(status.attempts == 1 for status in lost)
    assert all('was lost (NodeDiedError)' in error for _, _, error in seen if error)
    for status in lost:
      assert len(fakes.calls(status.run)) == 2 and status.steps_before > 0  # It had got somewhere.
    for status in statuses:
      assert workdirs.is_finished(status.run.workdir)
      assert len((status.run.workdir / 'episode.jsonl').read_text().splitlines()) == 10  # No step was repeated.
  finally:
    executor.close()
    cluster.shutdown()


@pytest.mark.slow
def test_closing_lets_runs_save(tmp_path):
  cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False))
  runs = fakes.make_runs(tmp_path, 2, ['SECONDS = 60'])
  executor = ray_executor.RayExecutor(_NEEDS, cluster.address)
  try:
    jobs = executor.submit(runs)
    deadline = time.monotonic() + 60
    while not any((run.workdir / 'config.gin').exists() for run in runs):
      assert time.monotonic() < deadline
      time.sleep(0.1)
    assert sorted(job.poll().value for job in jobs) == ['queued', 'running']
  finally:
    executor.close()
    cluster.shutdown()
  assert sorted((len(fakes.calls(run)), fakes.has_saved(run)) for run in runs) == [(0, False), (1, True)]
